"""Scenes to look at in a browser: `zarr_utils` takes them apart, `visualizer` shows them with Bokeh."""
