"""The few compiled loops, and their NumPy definitions in `reference`. Numba is imported on first use."""
