"""Rows in, a `UserTable` or a `GroupTable` out: files, SQL and data frames, grouped in exact integers."""

from hubermean.ingest.keys import keys_from_file, listed_keys
from hubermean.ingest.query import SqlQuery, sql
from hubermean.ingest.read import group_table, user_table
from hubermean.ingest.reading import OpenedData, Reading, column_names
from hubermean.ingest.vector_file import VectorFile, opened_vectors, vectors

__all__ = [
    "OpenedData",
    "Reading",
    "SqlQuery",
    "VectorFile",
    "column_names",
    "group_table",
    "keys_from_file",
    "listed_keys",
    "opened_vectors",
    "sql",
    "user_table",
    "vectors",
]
