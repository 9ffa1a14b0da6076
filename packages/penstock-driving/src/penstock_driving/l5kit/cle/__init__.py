"""Metrics of simulations frame by frame, limits that they must keep, and totals of scenes."""
