"""Driving logs in L5Kit's layout: a zarr group of structured arrays, scenes of frames of agents."""
