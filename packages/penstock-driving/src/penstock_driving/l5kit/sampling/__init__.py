"""Samples of single frames, out of rows in memory."""
