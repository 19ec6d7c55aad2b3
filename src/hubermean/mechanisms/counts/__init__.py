"""Counts of users and of records, in one group or in many.

Releases one integer per group with discrete Laplace noise. A user adds at most one to a count of users, and at most
`max_records` to a count of records.

- Guarantee: epsilon-DP (proofs/groups.md, Theorem 2).
- Needs `max_records` for records; `AdaptiveCount` estimates it with a part of the budget.
- A count that the neighbor relation makes public is released without noise.
"""
