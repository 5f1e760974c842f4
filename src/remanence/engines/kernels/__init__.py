"""Code shared by the engines that compile kernels (triton, cuda, c++).

contract    types that engines and kernels share
run         converts a task to the operands of the operator, and its results back
operator    the kernels as one torch operator: autograd, torch.compile
launch      allocates buffers, and runs the matmuls before and after the recurrence (products, layout)
derive      traces a gate's equation, differentiates it and generates code
machine_code    the C++ sources that kernels start with (functions.cuh, cells.cuh)
compiling   compiles several kernels in parallel, each only once
cache       compiled kernels on disk
one_step    single steps of a few sequences as one call of compiled code
pool        memory pool for CPU tensors
"""
