"""Formats of training data."""
