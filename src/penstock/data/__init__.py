"""A plan and its sources make a dataset: random access by position, or iteration with stages after the fetch."""
