"""Compiled kernels: numba, and nothing else."""
