"""What plugins may ask about the cycle that is being planned."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from phalanx.cluster.accounts import AccountRecord
from phalanx.cluster.ledger import Ledger
from phalanx.cluster.pods.records import GangRecord, PodRecord
from phalanx.cluster.state import ClusterState
from phalanx.scheduling.framework.capabilities import UsageDecay
from phalanx.scheduling.framework.timers import Timers
from phalanx.scheduling.gangs.quorum import QuorumRequirement
from phalanx.scheduling.quota.queue_tree import ShareView
from phalanx.scheduling.quota.usage_history import UsageHistory

if TYPE_CHECKING:
    from phalanx.cluster.classes import ClassRecord


class PodPlacer(Protocol):
    """Where the scheduler would put pods."""

    def place(self, pod_class: ClassRecord, count: int) -> list[int]:
        """Rows for up to `count` copies of the class, in placement order, fewer if fewer fit."""


class UsageAverages(Protocol):
    """What accounts have held."""

    def decayed(self, record: AccountRecord, now: float) -> Mapping[str, float]:
        """resource -> the fading average of what the account held."""


class AccountView(ShareView, Protocol):
    """One cycle as far as shares go: what asks for no more than this is answered from a copy as well
    (`deserved_from_accounts`)."""

    now: float

    @property
    def history(self) -> UsageAverages:
        """What accounts have held."""

    @property
    def usage_decay(self) -> UsageDecay:
        """How far the policy lets what accounts have held count."""

    def totals(self) -> dict[str, tuple[int, int]]:
        """resource -> (allocatable, used) over all nodes, as they were when first asked for in this cycle."""

    def usable(self) -> Mapping[str, int]:
        """resource -> what queues can have of what there is to share: not what nobody tolerates, nor what pods of
        no queue hold."""


class View(AccountView, Protocol):
    """One cycle as a plugin sees it; `Session` is the one that there is. `now` is in seconds since the epoch.

    `placer` tells where the scheduler would put pods, `timers` when a plugin last did what it does now and then.
    """

    state: ClusterState
    history: UsageHistory
    timers: Timers

    @property
    def placer(self) -> PodPlacer:
        """Where the scheduler would put pods."""

    @property
    def ledger(self) -> Ledger:
        """The accounts, up to date."""

    def priority(self, gang: GangRecord | PodRecord) -> int:
        """A pod's priority; of a gang the group's own, else the highest among its members."""

    def turn_priority(self, gang: GangRecord | PodRecord) -> int:
        """With which priority it takes its turn: of Kubernetes' own groups the members'."""

    def requirement(self, gang: GangRecord) -> QuorumRequirement:
        """What a plan must place for the gang's quorum to hold."""

    def reclaimable_estimate(self, gang: GangRecord, account: AccountRecord | None = None) -> Mapping[str, int]:
        """resource -> what others hold (in one account, or at all) that they may have to give up for a group."""

    def inqueue_resources(self) -> Mapping[str, int]:
        """What admitted groups announced in minResources and their members do not use yet."""


class WaitingUnit(Protocol):
    """What takes its turn as one: the gangs of a gang group (mostly one), or a pod on its own."""

    @property
    def pod(self) -> PodRecord | None:
        """The pod on its own."""

    @property
    def gangs(self) -> tuple[GangRecord, ...]:
        """The gangs otherwise."""

    @property
    def members(self) -> tuple[GangRecord | PodRecord, ...]:
        """Either of the two."""

    @property
    def name(self) -> str:
        """For people."""


class ActionView(View, Protocol):
    """One cycle as an action sees it."""

    @property
    def units(self) -> Sequence[WaitingUnit]:
        """What waits, in order."""

    def place(self, units: Iterable[WaitingUnit]) -> None:
        """Gives some of the units their turn, as the action `allocate` does: each is placed whole or not at all,
        or told what it lacks. Others than those of `units` are passed over."""

    def out_of_time(self) -> bool:
        """Whether the cycle has used up its time: then what has had no turn is for the next one."""
