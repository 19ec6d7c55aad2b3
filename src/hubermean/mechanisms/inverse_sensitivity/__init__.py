"""`inverse-sensitivity`: the Huber location, column by column, by the inverse sensitivity mechanism.

Releases one point of a public grid per column. The score of a point is the least number of users that must change
before it could be the Huber location of the data (Asi & Duchi 2020, "inverse sensitivity"); a point is drawn by the
exponential mechanism on these scores.

- Guarantee: epsilon-DP, or (epsilon, delta)-DP over several columns (proofs/inverse-sensitivity.md, Theorems 1 and 2).
- Needs `threshold` and `radius`, and with `per="record"` a contribution bound `max_records` unless
  `threshold_power=1`. By name alone, `estimated_huber` estimates what is missing.
- Use it for few columns, few users, or where delta must be 0. It never refuses to release, and outliers cannot move
  the answer far.
- Pieces: `mechanism` (parameters, output distribution), `grid` (the public grid, scores, interval);
  `huber.level_sets` computes the scores, `distributed.level_sets` computes them over partitions.
"""
