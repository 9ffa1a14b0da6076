"""The words that everything else is said in: columns, specs, spaces, episodes and selections. NumPy only."""
