"""A release as one HTML page that can be mailed, printed and published; it holds nothing that is not in the release."""

from hubermean.report.file import Destination
from hubermean.report.ledger_page import ledger_page
from hubermean.report.page import page

__all__ = ["Destination", "ledger_page", "page"]
