"""What a federated run hides: the change of one client that leaves every released average about as likely."""

from __future__ import annotations

from hubermean.types.request import NamedRelation, Neighbors


class ClientNeighbors(NamedRelation):
    """A neighbor relation between sets of clients.

    All are about everything a client sends in all rounds together. In sums of clipped updates a client that is absent
    and one whose every reply is thrown away look the same, so `zero-out` and `add-remove` need the same noise. They
    differ in what `population` may be: with `zero-out` the true number of clients, which is then public, with
    `add-remove` a number that was fixed without counting them.

    >>> ClientNeighbors.parse("zero-out").change
    "Throwing away all of one client's replies"
    """

    ZERO_OUT = "zero-out"
    REPLACE_USER = "replace-user"
    ADD_REMOVE = "add-remove"

    @property
    def replaces(self) -> bool:
        """Whether a client may send something else instead; it then moves a sum twice as far."""
        return self is ClientNeighbors.REPLACE_USER

    @property
    def change(self) -> str:
        """The change that a run hides, as the subject of a sentence."""
        return {
            ClientNeighbors.ZERO_OUT: "Throwing away all of one client's replies",
            ClientNeighbors.REPLACE_USER: "Replacing all of one client's replies by any others",
            ClientNeighbors.ADD_REMOVE: "Adding or removing one client with all its replies",
        }[self]

    @property
    def public_numbers(self) -> str:
        """What a run does not hide, as a sentence."""
        return {
            ClientNeighbors.ZERO_OUT: "The number of clients is public. What any one of them sent is not.",
            ClientNeighbors.REPLACE_USER: "The number of clients is public.",
            ClientNeighbors.ADD_REMOVE: "The population must be a number that was fixed without counting clients.",
        }[self]


Relation = Neighbors | ClientNeighbors
"""What a budget, or a charge to it, is about."""


def parse_relation(name: str | Relation) -> Relation:
    """Return the relation of a budget: one of tables, or "zero-out", which federated runs add."""
    if name in (ClientNeighbors.ZERO_OUT, ClientNeighbors.ZERO_OUT.value):
        return ClientNeighbors.ZERO_OUT
    return Neighbors.parse(name.value if isinstance(name, ClientNeighbors) else name)
