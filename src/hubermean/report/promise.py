"""The promise of a release for people who have never heard of epsilon."""

from __future__ import annotations

import math

from hubermean.readable import number
from hubermean.relations import Neighbors
from hubermean.report.subject import Subject

_HIDDEN = {
    Neighbors.REPLACE_USER: "if all records of that user had been any others, more or fewer of them",
    Neighbors.REPLACE_VALUES: "if all values of that user had been any others",
    Neighbors.ADD_REMOVE: "if that user had not been in the data at all",
}
_VISIBLE = {
    Neighbors.REPLACE_USER: "How many users there are is public; that somebody is one of them is not hidden.",
    Neighbors.REPLACE_VALUES: (
        "How many users there are and how many records each has is public; that somebody is one of them is not hidden."
    ),
    Neighbors.ADD_REMOVE: "Not even whether somebody is in the data shows.",
}
_LITTLE = 0.99  # a certainty beyond which a promise is worth little to a single user

NOT_COVERED = (
    (
        "Several releases add up.",
        "Two releases with epsilon = 1 about the same users promise epsilon = 2 together.",
    ),
    (
        "Facts about everybody.",
        "A mean tells about the population, and through it something about each member, whether they took part or not.",
    ),
    ("Who a user is.", "One user is what the user column says: two accounts of one person are two users."),
    (
        "What was given as known.",
        "Bounds, caps and other numbers that were told, not found, are taken as public: they must not come from a look "
        "at the data.",
    ),
)


def in_plain_words(subject: Subject) -> list[str]:
    """Paragraphs."""
    scope = "all groups of this page together" if subject.is_table else "this page"
    elsewhere = (
        ", in any groups" if subject.is_table and subject.neighbors is not Neighbors.ADD_REMOVE else ""
    )
    hidden = (
        "Every user in the data is promised the same: whoever sees this page, whatever else they know, learns almost "
        f"the same as {_HIDDEN[subject.neighbors]}{elsewhere}. One record or a million, all of a user's records are "
        "protected together."
    )
    sure = certainty(subject.epsilon)
    strength = (
        f"“Almost” is a number: epsilon = {number(subject.epsilon)} for {scope}. Say that somebody knows the records "
        "of all other users and takes a statement about this one for as likely true as false, 50%. "
        f"After this page they can be at most {_percent_up(sure)} sure that it is true, or that it is false."
    )
    if sure > _LITTLE:
        strength += " So large an epsilon promises little to a single user."
    if subject.delta > 0.0:
        strength += (
            f" Delta = {number(subject.delta)} is about the probability that the page tells more than that."
        )
    return [hidden, strength, _VISIBLE[subject.neighbors]]


def certainty(epsilon: float) -> float:
    """The most that somebody can be sure who was undecided: odds change by at most e^epsilon.

    >>> round(certainty(1.0), 4)
    0.7311
    """
    return 1.0 / (1.0 + math.exp(-epsilon))


def _percent_up(share: float) -> str:
    """In tenths of a percent, rounded up; never quite 100% where it is not."""
    tenths = math.ceil(1000.0 * share)
    return f"{tenths / 10:g}%" if tenths < 1000 else "nearly 100%"
