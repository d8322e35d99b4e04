"""What all packages share: validation, files, threads. Nothing here is public."""
