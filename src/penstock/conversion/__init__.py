"""Episodes of any format into any format that writes, with a report of what the target could not hold."""
