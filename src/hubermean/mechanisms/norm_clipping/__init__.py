"""`norm-clipping`: the mean of long vectors, with threshold and center found privately.

A few hundred users with ten thousand numbers each leave no budget for a search per column. Here all columns share one
threshold: a private search finds the distance from a center within which half of the users lie, each user's vector is
shortened to a part of it, and the sum gets Gaussian noise. If the mean lies far from the center in comparison, the
center is moved there and the step repeated. A last step along the direction that was found corrects the length.

- Guarantee: (epsilon, delta)-DP with delta > 0 (proofs/norm-clipping.md, Theorem 1).
- Needs nothing but a budget; `threshold`, `scale`, `max_records` and `n_users` save some of it.
- Use it for vectors of one kind, such as model updates: every column gets the same noise, in units of `scale`.
- Pieces: `plan` (budget and public rules), `users` (queries of the private table), `estimate` (what released sums say),
  `steps` (one private step each), `mechanism`; `data.rows` reads the rows.
"""
