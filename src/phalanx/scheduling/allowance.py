"""What accounts allow: the ceilings on a payer's paths, and how much room they leave."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec

from phalanx.cluster.accounts import AccountRecord, Payer
from phalanx.cluster.classes import Footprint

if TYPE_CHECKING:
    from phalanx.scheduling.session import Session

UNLIMITED = 2**62


class Ceiling(msgspec.Struct, frozen=True):
    """What an account may hold at most now, per resource; a resource that is absent is not limited.

    `word` names the ceiling in sentences ("capability", "max", "deserved share"). `change` is what would raise it,
    as an imperative, "" where only others' giving way does.
    """

    word: str
    limits: Mapping[str, int]
    change: str = ""


class Excess(msgspec.Struct, frozen=True, cache_hash=True):
    """An account does not allow one more: `used + wanted` of a resource would be above its ceiling.

    Amounts are in the resource's units. `placed` of `need` members were allowed before. `culprit` is the place, in
    its bundle, of the gang whose member it is.
    """

    account: AccountRecord
    word: str
    resource: str
    limit: int
    used: int
    wanted: int
    change: str = ""
    placed: int = 0
    need: int = 1
    culprit: int = 0


class Held(msgspec.Struct, frozen=True):
    """Nothing new may be charged, whatever its size: the queue does not exist or is closed, a budget is spent."""

    code: str
    message: str
    change: str = ""
    culprit: int = 0


class Turn(msgspec.Struct, frozen=True):
    """A queue keeps its order, and `head` (a gang or a pod, as people call it) has no room yet."""

    queue: str
    head: str


class Allowance:
    """Answers for one cycle. Ceilings stand for the cycle; what is used is always as of now, tentative charges of
    an open transaction included."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._ceilings: dict[Payer, list[tuple[AccountRecord, Ceiling]]] = {}

    def ceilings(self, payer: Payer) -> list[tuple[AccountRecord, Ceiling]]:
        """Every ceiling on the payer's path, leaf first."""
        found = self._ceilings.get(payer)
        if found is None:
            session = self._session
            session.state.ledger.settle()
            speakers = session.pipeline.plugins("ceiling")
            found = self._ceilings[payer] = [
                (account, ceiling)
                for account in payer.path
                for plugin in speakers
                if (ceiling := plugin.ceiling(session, account)) is not None and ceiling.limits
            ]
        return found

    def room(self, payer: Payer | None, footprint: Footprint) -> int:
        """How many more pods with this footprint the payer's accounts allow, only asked-for resources compared.

        (Upstream compares some resources that the pod does not ask for as well; research/coscheduling.md, 3.1.)
        """
        ceilings = self.ceilings(payer) if payer is not None else ()
        if not ceilings:
            return UNLIMITED
        self._session.state.ledger.settle()
        room = UNLIMITED
        for account, ceiling in ceilings:
            limits, used = ceiling.limits, account.used
            for name, amount in footprint.amounts.items():
                limit = limits.get(name)
                if limit is not None and amount > 0:
                    room = min(room, (limit - used.get(name, 0)) // amount)
        return max(0, room)

    def room_for(self, payer: Payer, amounts: Mapping[str, int]) -> int:
        """How many times the amounts are allowed on top of what is held."""
        ceilings = self.ceilings(payer)
        if not ceilings:
            return UNLIMITED
        self._session.state.ledger.settle()
        room = UNLIMITED
        for account, ceiling in ceilings:
            for name, amount in amounts.items():
                limit = ceiling.limits.get(name)
                if limit is not None and amount > 0:
                    room = min(room, (limit - account.used.get(name, 0)) // amount)
        return max(0, room)

    def excess(
        self,
        payer: Payer | None,
        footprint: Footprint,
        count: int = 1,
        placed: int = 0,
        need: int = 1,
        culprit: int = 0,
    ) -> Excess | None:
        """Which ceiling does not allow `count` more pods; the first on the path. None if all do."""
        self._session.state.ledger.settle()
        for account, ceiling in self.ceilings(payer) if payer is not None else ():
            for name, amount in footprint.amounts.items():
                limit, used = ceiling.limits.get(name), account.used.get(name, 0)
                if limit is not None and amount > 0 and used + amount * count > limit:
                    wanted = amount * count
                    return Excess(
                        account, ceiling.word, name, limit, used, wanted, ceiling.change, placed, need, culprit
                    )
        return None
