"""Aggregate queries over a table whose users are on one machine or in partitions on many.

A query is a small picklable object. It is called with the users of one partition and returns an answer whose size does
not depend on how many users there are. One pass over the partitions costs seconds, whatever it computes, so mechanisms
need few passes:

- `queries`: sums over partitions, memoised queries, and queries of independent computations batched into one pass;
- `huber_center`: the Huber center of weighted points, and the weight of users by depth;
- `level_sets`, `level_set_queries`: level sets of the inverse-sensitivity score.

Every function here also takes a `UserTable`, for which it computes directly. Whether users are partitioned never
changes a released bit.
"""
