"""Private tables of users and groups, and the exact fixed-point arithmetic beneath them."""
