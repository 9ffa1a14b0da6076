"""Pairs of frames for representation learning."""
