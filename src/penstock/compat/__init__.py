"""Compatibility layers: the APIs of il-representations, L5Kit and Leela Chess Zero's loader over penstock."""
