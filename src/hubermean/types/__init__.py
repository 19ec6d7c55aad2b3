"""What callers state and what leaves: requests, neighbor relations, releases, and how numbers are written."""
