"""Accuracy beside other libraries, each in an environment of its own."""
