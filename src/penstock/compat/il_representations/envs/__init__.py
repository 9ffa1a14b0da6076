"""Configurations, environments, demonstrations."""
