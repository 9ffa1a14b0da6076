"""Compiled loops over driving logs, maps and rasters, a file for each subject. Callers import from the files."""
