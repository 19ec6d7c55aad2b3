"""Reading: files, SQL and data frames, grouped by user or by user and group in exact integers."""

from hubermean.ingest.reading import group_table, user_table
from hubermean.ingest.sql import SqlQuery, sql
from hubermean.ingest.vectors import VectorFile, vectors

__all__ = ["SqlQuery", "VectorFile", "group_table", "sql", "user_table", "vectors"]
