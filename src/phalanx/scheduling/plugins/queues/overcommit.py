"""Plugin `overcommit`: admit gangs while the sum of their minResources stays within a factor of the cluster."""

from __future__ import annotations

from collections.abc import Hashable

from phalanx.model.text.quantity import format_alike
from phalanx.plugin import Arguments, GangRecord, Plugin, View, Vote

_DEFAULT_FACTOR = 1.2
_UNLIMITED = 2**62
_HIGHEST_FACTOR = 1e6  # "infinity" is a way to write: never hold a group back


class Overcommit(Plugin):
    """Admit a gang when `inqueue + minResources <= total x factor - used` for every resource that it names.

    Reclaimable usage does not count as used. (In Volcano it does, and can prevent a queue from reclaiming what it
    deserves.)
    """

    name = "overcommit"
    arguments = ("overcommit-factor",)
    admits_with_nodes = True

    def __init__(self, arguments: Arguments) -> None:
        factor = arguments.number("overcommit-factor", _DEFAULT_FACTOR)
        if factor < 1:
            self.remarks = (f"overcommit-factor {factor} is below 1; {_DEFAULT_FACTOR} is used, as in Volcano",)
            factor = _DEFAULT_FACTOR
        self._per_mille = round(min(factor, _HIGHEST_FACTOR) * 1000)

    def admit(self, session: View, gang: GangRecord) -> Vote:
        return Vote.PERMIT if self.max_admissions(session, gang) else Vote.REJECT

    def why_not_admitted(self, session: View, gang: GangRecord) -> tuple[str, str] | None:
        spec = gang.spec
        inqueue, totals = session.inqueue_resources(), session.totals()
        for name, amount in spec.min_resources or () if spec is not None else ():
            allocatable, used = totals.get(name, (0, 0))
            most = allocatable * self._per_mille // 1000
            left = max(0, most - used - inqueue.get(name, 0))
            if spec is not None and amount > left:
                # At least one pod requests the mean of the gang.
                mean = -(-amount // max(1, spec.min_member))
                largest = _largest(session, name)
                wanted, rest, missing, each, node = format_alike(name, amount, left, amount - left, mean, largest)
                name_of_size = "it requests" if spec.generated else "its minResources request"
                message = (
                    f"{name_of_size} {wanted} {name}; {rest} {name} can still be admitted "
                    f"(overcommit-factor {self._per_mille / 1000:g})"
                )
                if mean > largest:
                    message += f"; the largest node offers {node} {name}"
                    ways = [f"request at most {node} {name} per pod"] * bool(largest)
                    ways.append(f"add nodes that offer at least {each} {name} each")
                elif amount > most:
                    ways = ["add nodes"]
                else:
                    ways = [f"wait until groups with {missing} {name} finish"]
                # Pods beyond the size of the cluster or of its nodes never start, whatever the factor admits.
                if amount <= allocatable and mean <= largest:
                    ways.append("raise overcommit-factor")
                if not spec.generated and mean <= largest:
                    ways.append("lower minResources")
                return message, ", or ".join(ways)
        return None

    def admission_key(self, gang: GangRecord) -> Hashable:
        return ()

    def max_admissions(self, session: View, gang: GangRecord) -> int:
        spec = gang.spec
        if spec is None or not spec.min_resources:
            return _UNLIMITED
        inqueue, totals = session.inqueue_resources(), session.totals()
        fits = _UNLIMITED
        for name, amount in spec.min_resources:
            allocatable, used = totals.get(name, (0, 0))
            room = allocatable * self._per_mille // 1000 - used - inqueue.get(name, 0)
            if amount > room:
                # Otherwise borrowed room could never be reclaimed for the group: without pods it evicts no victims.
                room += session.reclaimable_estimate(gang).get(name, 0)
            if amount > 0:
                fits = min(fits, max(0, room // amount))
        return fits


def _largest(session: View, resource: str) -> int:
    """Return the largest amount of a resource that one node offers."""
    column, allocatable = session.state.space.find(resource), session.state.nodes.allocatable
    known = column is not None and column < len(allocatable)
    return int(allocatable[column].max(initial=0)) if known else 0
