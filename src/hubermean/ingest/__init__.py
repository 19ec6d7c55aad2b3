"""Rows in, a `UserTable` out: files, SQL and data frames, grouped by user in exact integers."""

from hubermean.ingest.query import SqlQuery, sql
from hubermean.ingest.read import user_table

__all__ = ["SqlQuery", "sql", "user_table"]
