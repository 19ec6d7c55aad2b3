"""Time and memory against users and columns."""
