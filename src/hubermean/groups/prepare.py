"""From a mechanism and public facts to a grouped release: all groups at once where that can be done."""

from __future__ import annotations

from dataclasses import replace

from hubermean.groups.adaptive import adaptive_groups
from hubermean.groups.division import Division
from hubermean.groups.grouped import Groups, OneByOne, PreparedGroups, Together
from hubermean.mechanisms import Adaptive, Auto, Clipped, Mechanism, PublicFacts
from hubermean.mechanisms.counted import AdaptiveCount, Count


def settled(mechanism: Mechanism, division: Division) -> Mechanism:
    """The mechanism that will serve, as far as the request alone decides it; refused where it cannot.

    `auto` with bounds is `clipped`, and `adaptive` where something is not known.
    """
    if isinstance(mechanism, Auto):
        able = mechanism.able(division.means)
        if len(able) == 1:
            mechanism = able[0]
    request = division.tuning if isinstance(mechanism, Adaptive | AdaptiveCount) else division.means
    mechanism.check(request)
    return mechanism


def needs_pool(mechanism: Mechanism) -> bool:
    """Whether something must be found on one group of each user."""
    return isinstance(mechanism, Adaptive | AdaptiveCount)


def prepare_groups(
    mechanism: Mechanism, division: Division, facts: PublicFacts, pool_facts: PublicFacts | None
) -> PreparedGroups:
    """Decide everything that does not need private data.

    `facts` are those of the groups, of which neither the number of users nor of records is public; `pool_facts` those
    of the table of one group of each user.
    """
    groups: Groups
    match mechanism:
        case Clipped() | Count():
            changed = replace(mechanism, changes=division.changes)
            groups = Together(prepared=changed.prepare(division.means, facts), mechanism=mechanism.name)
        case Adaptive() | AdaptiveCount():
            assert pool_facts is not None
            groups = adaptive_groups(mechanism, division, facts, pool_facts)
        case _:
            prepared = mechanism.prepare(division.one_group(), facts)
            groups = OneByOne(
                prepared=prepared,
                claim=division.claim_of_means(),
                mechanism=mechanism.name,
                columns=len(division.means.columns),
            )
    return PreparedGroups(division=division, groups=groups)
