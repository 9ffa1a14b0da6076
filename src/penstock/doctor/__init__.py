"""Looks for mistakes in the values of any dataset: checks by row, measures by episode, and their outliers."""
