"""`clipped`: the mean with bounds supplied by the caller, exact from the first record on.

Releases a few integer sums with integer noise: of clamped user means, of weights and of squares. Their ratio is the
mean; the squares give an interval for noise and sampling.

- Guarantee: epsilon-DP with discrete Laplace noise for delta = 0, else (epsilon, delta)-DP (proofs/clipped.md,
  Theorem 1).
- Needs `bounds` and, with `per="record"`, a contribution bound `max_records`.
- Use it where bounds are public knowledge, and for many groups at once. Values beyond the bounds count as the bounds,
  so bounds that are too narrow bias the mean, and bounds that are too wide add noise.
- Pieces: `mechanism` (parameters, sums, noise), `moments` (the grid, what each user adds, sensitivity), `estimates`
  (means and intervals from noisy sums).
"""
