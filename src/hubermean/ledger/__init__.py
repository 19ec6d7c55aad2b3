"""Budgets of data sets, on SQLite or PostgreSQL. Charges are committed first; no question is charged twice."""

from hubermean.ledger.dataset import Dataset
from hubermean.ledger.entries import Entry
from hubermean.ledger.ledger import BudgetLedger
from hubermean.ledger.verification import Fault, Verification

__all__ = ["BudgetLedger", "Dataset", "Entry", "Fault", "Verification"]
