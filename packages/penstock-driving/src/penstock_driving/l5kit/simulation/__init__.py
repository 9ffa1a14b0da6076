"""Closed-loop simulation of scenes: models drive the ego and cars around it."""
