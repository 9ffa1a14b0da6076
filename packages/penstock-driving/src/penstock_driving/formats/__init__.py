"""Formats of driving logs."""
