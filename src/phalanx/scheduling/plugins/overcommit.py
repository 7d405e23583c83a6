"""`overcommit`: let groups create their pods while their announced sizes stay within a factor of the cluster."""

from __future__ import annotations

from phalanx.cluster.members import GangRecord
from phalanx.scheduling.arguments import Arguments
from phalanx.scheduling.plugin import Plugin, Vote
from phalanx.scheduling.session import Session

_DEFAULT_FACTOR = 1.2
_HIGHEST_FACTOR = 1e6  # "infinity" is a way to write: never hold a group back


class Overcommit(Plugin):
    """Permits a group when `inqueue + minResources <= total x factor - used` in every resource that it names."""

    name = "overcommit"
    arguments = ("overcommit-factor",)

    def __init__(self, arguments: Arguments) -> None:
        factor = arguments.number("overcommit-factor", _DEFAULT_FACTOR)
        if factor < 1:
            self.remarks = (f"overcommit-factor {factor} is below 1; {_DEFAULT_FACTOR} is used, as in Volcano",)
            factor = _DEFAULT_FACTOR
        self._per_mille = round(min(factor, _HIGHEST_FACTOR) * 1000)

    def admit(self, session: Session, gang: GangRecord) -> Vote:
        noun = gang.noun
        if noun is None or not noun.min_resources:
            return Vote.PERMIT
        promised = session.promised()
        totals = session.totals()
        for name, amount in noun.min_resources:
            allocatable, used = totals.get(name, (0, 0))
            room = allocatable * self._per_mille // 1000 - used
            if promised.get(name, 0) + amount > room:
                return Vote.REJECT
        return Vote.PERMIT
