"""Rows in, a `UserTable` out: files, SQL and data frames, grouped by user in exact integers."""

from hubermean.ingest.query import SqlQuery, sql
from hubermean.ingest.read import column_names, user_table

__all__ = ["SqlQuery", "column_names", "sql", "user_table"]
