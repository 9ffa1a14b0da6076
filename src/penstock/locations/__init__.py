"""Where data is: the grammar of locations, and objects behind URLs."""
