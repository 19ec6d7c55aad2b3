"""`propose-test-release`: the Huber location of all columns at once, behind a private test of its stability.

Releases the Huber center with Gaussian noise of a public scale, or nothing. The center moves little when one user
changes, provided enough users lie well inside the threshold around it. The distance to instability of a data set is how
many users could change before that property is lost; the probability to release grows with it (Dwork & Lei 2009).

- Guarantee: (epsilon, delta)-DP with delta > 0, refusals included (proofs/propose-test-release.md, Theorem 1; with a
  fallback, Theorem 2).
- Needs `threshold`, `radius` and, with `per="record"`, `max_records`; some hundred users or more.
- Use it for several columns and many users: the noise grows with sqrt(d), and the answer resists outliers. It may
  refuse to release (`NotReleased`), which costs the budget.
- Pieces: `mechanism` (parameters, output distribution), `stability` (the test), `fallback` (`inverse-sensitivity` where
  the estimated total weight is too small); `huber.geometry` and `distributed.huber_center` find the center.
"""
