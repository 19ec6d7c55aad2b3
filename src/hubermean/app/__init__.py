"""A page in the browser that plans, releases and accounts, over the same public functions: `hubermean app`."""
