"""`adaptive`: estimate what the caller did not state, step by step; then one clipped step from the estimated center.

`mechanism` is the entry point, `steps` the private steps in their order, `budget_split` what each may cost,
`clipped_step` the mean itself with its interval. Proof: proofs/adaptive.md.
"""
