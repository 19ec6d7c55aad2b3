"""The guarantee of a release in plain language, for readers who do not know epsilon."""

from __future__ import annotations

import math
from decimal import ROUND_CEILING, Context, Decimal

from hubermean.report.subject import Subject
from hubermean.types.formatting import number, one_sided
from hubermean.types.request import Neighbors

_HIDDEN = {
    Neighbors.REPLACE_USER: "if all of that user's records were replaced by any others, more or fewer",
    Neighbors.REPLACE_VALUES: "if all of that user's values were replaced by any others",
    Neighbors.ADD_REMOVE: "without that user's data",
}
_VISIBLE = {
    Neighbors.REPLACE_USER: "The number of users is public. Whether someone is one of them is not protected.",
    Neighbors.REPLACE_VALUES: (
        "The number of users and the number of records of each are public. "
        "Whether someone is one of them is not protected."
    ),
    Neighbors.ADD_REMOVE: "Whether someone is in the data at all is protected as well.",
}
_LITTLE = 0.99  # beyond this certainty, a guarantee offers little to a single user

NOT_COVERED = (
    (
        "Several releases add up.",
        "Two releases with epsilon = 1 about the same users guarantee epsilon = 2 together.",
    ),
    (
        "Facts about everybody.",
        "A mean describes the population, and so reveals something about each member, in the data or not.",
    ),
    ("Who a user is.", "The user column defines a user: two accounts of one person count as two users."),
    (
        "Public parameters.",
        "Bounds, contribution bounds and other numbers that the analyst supplied count as public. They must not be "
        "derived from the data.",
    ),
)


def explain_guarantee(subject: Subject) -> list[str]:
    """Return paragraphs that explain what is protected, how strongly, and what stays public."""
    info = subject.info
    scope = "all groups of this page together" if subject.is_table else "this page"
    elsewhere = ", in any groups" if subject.is_table and info.neighbors is not Neighbors.ADD_REMOVE else ""
    hidden = (
        "The guarantee is the same for every user. Whatever anyone infers about a user from this page, they could have "
        f"inferred almost as well {_HIDDEN[info.neighbors]}{elsewhere}. All records of a user are protected together, "
        "whether one or a million."
    )
    sure = certainty(info.epsilon)
    about = f"{suspicion(info.neighbors, 'user')}, and knows the records of all others,"
    strength = (
        f"Epsilon = {number(info.epsilon)} for {scope} measures the difference. {about} can become at most "
        f"{percent_up(sure)} sure after seeing this page."
    )
    if info.neighbors is Neighbors.ADD_REMOVE:
        other = certainty(STEPS_BETWEEN_FACTS * info.epsilon)
        strength += f" For anything else about a user, 50% can become at most {percent_up(other)}."
    if sure > _LITTLE:
        strength += " An epsilon this large guarantees little to a single user."
    if info.delta > 0.0:
        strength += (
            f" Delta = {number(info.delta)} is about the probability that the page reveals more than that."
        )
        if info.neighbors is Neighbors.ADD_REMOVE:
            twice = min(info.delta * (1.0 + math.exp(min(info.epsilon, 700.0))), 1.0)
            shown = Context(prec=2, rounding=ROUND_CEILING).plus(Decimal(twice))
            strength += f" For anything else about a user it is {one_sided(shown, up=True)}."
    return [hidden, strength, _VISIBLE[info.neighbors]]


STEPS_BETWEEN_FACTS = 2
"""Under add-remove, a user with one record and with another are two steps apart: removing one, adding the other."""


def suspicion(neighbors: Neighbors, who: str) -> str:
    """Return who it is that epsilon limits, as the beginning of a sentence.

    >>> suspicion(Neighbors.ADD_REMOVE, "person")
    'Someone who is 50% sure that a person is in the data'
    """
    if neighbors is Neighbors.ADD_REMOVE:
        return f"Someone who is 50% sure that a {who} is in the data"
    return f"Someone who is 50% sure of something about a {who}"


def certainty(epsilon: float) -> float:
    """Return the largest certainty of someone who was 50% sure before: odds change by at most e^epsilon.

    >>> round(certainty(1.0), 4)
    0.7311
    """
    return 1.0 / (1.0 + math.exp(-epsilon))


def percent_up(share: float) -> str:
    """Return a share in tenths of a percent, rounded up, and below 100%.

    >>> percent_up(certainty(1.0)), percent_up(certainty(20.0))
    ('73.2%', 'nearly 100%')
    """
    tenths = math.ceil(1000.0 * share)
    return f"{tenths / 10:g}%" if tenths < 1000 else "nearly 100%"
