"""Error of releases beside the non-private mean, and under attack."""
