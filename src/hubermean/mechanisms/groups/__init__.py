"""Grouped releases: one mean or count per group, by any mechanism.

Releases which groups appear, where that is private, and then a value for each. A user counts in at most `max_groups`
groups; the budget covers all changes that one user can make to them. `clipped`, `adaptive` and counts release all
groups from one set of noisy sums; other mechanisms run group by group.

- Guarantee: that of the request, for the whole contribution of a user to all groups (proofs/groups.md, Theorem 1).
- Needs `max_groups`; with private groups also delta > 0. Groups that the caller lists with `keys` cost nothing to
  select.
- Pieces: `budget_split` (what selection and means may spend), `partition_selection` (which groups appear), `grouped` (a
  mechanism over groups), `resolution` (from a mechanism and public facts to a prepared grouped release).
"""
