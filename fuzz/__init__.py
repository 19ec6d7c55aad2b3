"""Hostile input: fuzzing of whatever reads what others wrote. See README.md beside this file."""
