"""The doors: other libraries' names over our own code."""
