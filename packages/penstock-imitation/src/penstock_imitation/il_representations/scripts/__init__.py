"""The programs that make datasets."""
