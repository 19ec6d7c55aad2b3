"""Rows in, a `UserTable` or a `GroupTable` out: files, SQL and data frames, grouped in exact integers."""

from hubermean.ingest.engines import is_query
from hubermean.ingest.groups import group_table
from hubermean.ingest.keys import keys_from_file, listed_keys
from hubermean.ingest.query import SqlQuery, sql
from hubermean.ingest.read import column_names, user_table
from hubermean.ingest.reading import Reading
from hubermean.ingest.vector_file import VectorFile, opened_vectors, vectors

__all__ = [
    "Reading",
    "SqlQuery",
    "VectorFile",
    "column_names",
    "group_table",
    "is_query",
    "keys_from_file",
    "listed_keys",
    "opened_vectors",
    "sql",
    "user_table",
    "vectors",
]
