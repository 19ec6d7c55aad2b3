"""Budgets of data sets, on SQLite or PostgreSQL: no release without a committed charge, and none charged twice."""

from hubermean.ledger.account import Account, charged_to
from hubermean.ledger.entries import Entry
from hubermean.ledger.ledger import Ledger
from hubermean.ledger.question import Question, question_of
from hubermean.ledger.standing import Dataset
from hubermean.ledger.verify import Fault, Verification

__all__ = [
    "Account",
    "Dataset",
    "Entry",
    "Fault",
    "Ledger",
    "Question",
    "Verification",
    "charged_to",
    "question_of",
]
