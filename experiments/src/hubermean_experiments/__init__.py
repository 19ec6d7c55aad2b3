"""Experiments on Zhao et al. (2024): the paper as printed (`paper`), its figures (`figures`), real incomes (`incomes`).

The package is not part of the hubermean wheel. Nothing here is reachable from `hubermean.mean`.
"""
