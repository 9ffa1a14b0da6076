"""Compiled loops of simulations. Callers import their functions from the files."""
