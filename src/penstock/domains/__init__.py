"""What values mean: a package a domain."""
