"""Vectors with defaults only, beside the threshold that is best in hindsight."""
