"""Real incomes for the simulations: an IPUMS extract of the caller, or data that Python packages include."""
