"""What engines share that compile kernels.

contract    the types between engines and kernels
run         from a task to the operator and back
operator    kernels as one operation of torch: autograd, torch.compile
launch      buffers, and the products before and after the recurrence (products, layout)
derive      a gate's equation as formulas, and these as code
machine_code    what kernels in C++ begin with (functions.cuh, cells.cuh)
compiling   several kernels side by side, each once
cache       compiled kernels on disk
"""
