"""`smooth-sensitivity`: the Huber location with noise scaled to a certified smooth sensitivity, in any dimension.

Releases the computed Huber center, clipped to a ball and rounded to a public grid, with integer Gaussian noise. The
scale of the noise follows from how many changed users this data set withstands: a smooth upper bound on the local
sensitivity (Nissim, Raskhodnikova & Smith 2007). The scale is private; it shows in nothing that is released.

- Guarantee: (epsilon, delta)-DP with delta > 0 (proofs/smooth-sensitivity.md, Theorem 7).
- Needs `threshold`, `radius` and, with `per="record"`, `max_records`.
- Use it to compare with the paper (Zhao et al. 2024), whose framework it makes valid. It always releases, but it offers
  no interval, and its noise is usually larger than that of `propose-test-release`.
- Pieces: `mechanism` (parameters, output distribution); `huber.geometry` and `huber.local_sensitivity` compute the
  center and its certified bounds, `accounting.smooth_sensitivity` the noise.
"""
