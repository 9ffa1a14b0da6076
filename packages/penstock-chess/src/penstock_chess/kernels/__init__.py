"""Compiled loops over chess frames, a file for each subject. Callers import their functions from the files."""
