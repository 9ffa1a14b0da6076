"""Which rows, in which order: arithmetic on integers that knows no values."""
