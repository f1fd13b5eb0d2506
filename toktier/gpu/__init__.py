"""The GPU path in Python: kernels from sources to a cubin that may be run, and what a program needs for a device.

NVRTC compiles in a child process (`nvrtc`, `compile_worker`), what it makes is kept (`cubin_cache`), held to the ABI of
the native module (`cubin`) and to the listed digests (`digests`); `delivery` chooses (docs/gpu-build.md). Not
here: devices, which only the native module touches, and who serves (`toktier.routing`).
"""
