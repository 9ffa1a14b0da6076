"""Live data: the extent moves while it is read, and still one seed and a journal fix the order."""
