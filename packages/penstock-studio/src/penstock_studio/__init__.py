"""See what is in a dataset: the viewer in the browser, films, scenes of driving logs, recordings of Rerun."""

__version__ = "0.1.0"
