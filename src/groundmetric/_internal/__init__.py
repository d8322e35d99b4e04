"""What all packages share: validation, files, threads, compiled kernels. Nothing here is public."""
