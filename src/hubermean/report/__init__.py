"""A release as one HTML page that can be mailed, printed and published; it holds nothing that is not in the release."""

from hubermean.report.file import Destination
from hubermean.report.ledger_page import asked_in_words, ledger_page, outcome_in_words
from hubermean.report.page import page

__all__ = ["Destination", "asked_in_words", "ledger_page", "outcome_in_words", "page"]
