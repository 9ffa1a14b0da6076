"""The operations that jobs can do, one file each."""
