"""How good `adaptive` is with defaults only: on real tables by person, beside other methods, and on simulated laws."""
