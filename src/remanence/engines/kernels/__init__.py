"""What engines share that compile kernels.

contract    the types between engines and kernels
run         from a task to the operator and back
operator    kernels as one operation of torch: autograd, torch.compile
launch      buffers, and the products before and after the recurrence (products, layout)
derive      a gate's equation as formulas, and these as code
machine_code    compiled kernels on disk; functions.cuh, cells.cuh: what kernels in C++ begin with
"""
