"""What every format provides: a `Source` to read, a `Writer` to write, and a `Format` that recognises and opens."""
