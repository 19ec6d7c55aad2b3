"""The DuckDB engine: files, queries and data frames on one machine."""
