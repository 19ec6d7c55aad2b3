"""`winsorized`: the two-stage baseline of Levy et al. (2021).

Releases a clipped mean within an interval that is selected privately first. Several columns are rotated at random, so
that every coordinate has a small range.

- Guarantee: epsilon-DP for delta = 0, else (epsilon, delta)-DP (proofs/winsorized.md, Theorem 1).
- Needs `threshold` and `radius`, and a public number of users: `replace-user`, or `replace-values` with `per="record"`.
- Use it as a baseline, or where user means are concentrated and many columns are released at once.
- Pieces: `mechanism` (parameters, output distribution), `bins` (the selection of an interval), `rotation`, and
  `budget_split` (between selection and noise).
"""
