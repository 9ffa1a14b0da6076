"""Compiled loops over data that grow, a file for each subject. Callers import their functions from the files."""
