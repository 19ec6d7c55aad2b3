"""Federated training under attack: rounds of `hubermean.federated` beside other aggregation rules."""
