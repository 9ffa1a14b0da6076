"""Formats of demonstrations."""
