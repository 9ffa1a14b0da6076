"""Datasets: reading, filtering, sampling, and the storage below."""
