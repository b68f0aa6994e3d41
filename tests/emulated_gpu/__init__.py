"""A CUDA device in software: PyTorch's own CUDA host code runs on libraries whose device memory is the host's.

`sources/` are the libraries in C: runtime with cuBLAS and NCCL (preloaded), driver and NVML. `libraries.py` builds
them. `emulation.py` computes on the CPU what kernels would have computed. `processes.py` starts programs and ranks that
see the devices. It shows that calls, their order, memory and results are right. It says nothing about speed.
Not emulated: cuDNN (switched off, convolutions are computed above it), Triton and `torch.compile`, Kineto, timing.
"""
