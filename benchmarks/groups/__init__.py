"""Means by group on real tables: hubermean with defaults only, beside other libraries with bounds that are given."""
