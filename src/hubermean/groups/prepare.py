"""From a mechanism and public facts to a grouped release: all groups at once where that can be done."""

from __future__ import annotations

from dataclasses import replace

from hubermean.groups.division import Division
from hubermean.groups.grouped import Groups, OneByOne, PreparedGroups, Together
from hubermean.groups.tuned import TunedGroups, clipped_for_groups, count_for_groups
from hubermean.mechanisms import Auto, Clipped, Mechanism, PublicFacts, Tuned
from hubermean.mechanisms.counted import Count, TunedCount
from hubermean.mechanisms.purse import Purse


def settled(mechanism: Mechanism, division: Division) -> Mechanism:
    """The mechanism that will serve, as far as the request alone decides it; refused where it cannot.

    `auto` with bounds is `clipped`, and `tuned` where something is not known.
    """
    if isinstance(mechanism, Auto):
        able = mechanism.able(division.means)
        if len(able) == 1:
            mechanism = able[0]
    request = division.tuning if isinstance(mechanism, Tuned | TunedCount) else division.means
    mechanism.check(request)
    return mechanism


def needs_pool(mechanism: Mechanism) -> bool:
    """Whether something must be found on one group of each user."""
    return isinstance(mechanism, Tuned | TunedCount)


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
        case Tuned() | TunedCount():
            assert pool_facts is not None
            # One currency: what is left must pay for groups that one user may be in several of.
            steps = mechanism.prepare(division.tuning, pool_facts, purse=Purse.pure(division.tuning.epsilon))
            steps = replace(steps, charged=division.whole)
            means = isinstance(mechanism, Tuned)
            finish = (clipped_for_groups if means else count_for_groups)(steps, division, facts)
            groups = TunedGroups(steps=steps, finish=finish, mechanism=mechanism.name, division=division)
        case _:
            prepared = mechanism.prepare(division.one_group(), facts)
            groups = OneByOne(
                prepared=prepared,
                claim=division.claim_of_means(),
                mechanism=mechanism.name,
                columns=len(division.means.columns),
            )
    return PreparedGroups(division=division, groups=groups)
