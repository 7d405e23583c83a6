"""What gangs need to stay whole: how many members each can do without, and which gangs stand or fall together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from phalanx.cluster.composites import Composites
from phalanx.cluster.members import GangRecord
from phalanx.model.gang import GangKey, MatchPolicy
from phalanx.scheduling.bundles import tied


def bundle_of(gang: GangRecord, gangs: Mapping[GangKey, GangRecord], composites: Composites) -> list[GangRecord]:
    """The gangs that must be satisfied, or may only be disrupted, together with this one (included), by key."""
    together = composites.tied(gang)
    if together:
        return together
    bundle = tied(gang, gangs) or {gang.key: gang}
    return [bundle[key] for key in sorted(bundle)]


def is_unit(gang: GangRecord, composites: Composites) -> bool:
    """Whether its members may only be disrupted together, by its own word or that of a composite above."""
    return gang.noun is not None and (gang.noun.unit or any(each.unit for each in composites.above(gang)))


def spare_members(gang: GangRecord, composites: Composites) -> tuple[int, Counter[str]]:
    """(how many members the gang can do without, of which so many of each role that has a minimum)."""
    noun = gang.noun
    if noun is None or is_unit(gang, composites):
        return 0, Counter()
    free = _held(gang) - noun.min_member
    if noun.min_member <= 1 and not noun.roles and len(noun.bundle) <= 1:
        free = _held(gang)  # one that needs nobody beside it, and that nobody else needs, has nothing to break
    roles = Counter({role: _held(gang, role) - least for role, least in noun.roles})
    return (0 if any(left < 0 for left in roles.values()) else free), roles


def holds_quorum(gang: GangRecord) -> bool:
    """Whether there is a quorum that could be broken."""
    noun = gang.noun
    if noun is None:
        return False
    roles = all(_held(gang, role) >= least for role, least in noun.roles)
    return _held(gang) >= noun.min_member and roles and _held(gang) > 0


def _held(gang: GangRecord, role: str | None = None) -> int:
    """The members that count: on a node or on the way there, and those that are done if the policy counts them."""
    counts = gang.counts(role)
    done = gang.noun is not None and gang.noun.match_policy is MatchPolicy.WAITING_RUNNING_SUCCEEDED
    return counts.active + (counts.succeeded if done else 0)
