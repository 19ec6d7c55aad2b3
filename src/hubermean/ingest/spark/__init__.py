"""The Spark engine: data frames and tables of a cluster."""
