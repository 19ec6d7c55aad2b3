"""Releases and ledgers as self-contained HTML pages, which hold nothing but what was released or public."""

from hubermean.report.file import Destination
from hubermean.report.ledger_page import ledger_page
from hubermean.report.page import page

__all__ = ["Destination", "ledger_page", "page"]
