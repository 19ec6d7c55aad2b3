"""Output distributions: what a release is sampled from and what an audit compares."""
