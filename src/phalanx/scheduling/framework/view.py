"""Interface of a cycle for plugins."""

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
    """Placement of pods by the scheduler."""

    def place(self, pod_class: ClassRecord, count: int) -> list[int]:
        """Return rows for up to `count` copies of the class, in placement order; fewer if fewer fit."""


class UsageAverages(Protocol):
    """Past usage of accounts."""

    def decayed(self, record: AccountRecord, now: float) -> Mapping[str, float]:
        """Return the decayed average usage of the account by resource."""


class AccountView(ShareView, Protocol):
    """Part of a cycle that concerns shares. It is also served from a copy (`deserved_from_accounts`)."""

    now: int

    @property
    def history(self) -> UsageAverages:
        """Past usage of accounts."""

    @property
    def usage_decay(self) -> UsageDecay:
        """The policy's decay of past usage."""

    def totals(self) -> dict[str, tuple[int, int]]:
        """Return (allocatable, used) of all nodes by resource, as of the first call in this cycle."""

    def usable(self) -> Mapping[str, int]:
        """Return the amounts that queues can share by resource.

        Amounts on nodes with untolerated taints and usage of pods without a queue are excluded.
        """


class View(AccountView, Protocol):
    """A cycle as plugins see it; `Session` implements it. `now` is in seconds since the epoch.

    `placer` returns where the scheduler would place pods; `timers` are the times of periodic work of plugins.
    """

    state: ClusterState
    history: UsageHistory
    timers: Timers

    @property
    def placer(self) -> PodPlacer:
        """Placement of pods by the scheduler."""

    @property
    def ledger(self) -> Ledger:
        """The accounts, up to date."""

    def priority(self, gang: GangRecord | PodRecord) -> int:
        """Return a pod's priority; of a gang the group's own, else the highest of its members."""

    def turn_priority(self, gang: GangRecord | PodRecord) -> int:
        """Return the priority for the turn: of Kubernetes' own groups the members' priority."""

    def requirement(self, gang: GangRecord) -> QuorumRequirement:
        """Return the members that a plan must place to reach the gang's quorum."""

    def reclaimable_estimate(self, gang: GangRecord, account: AccountRecord | None = None) -> Mapping[str, int]:
        """Return the amounts by resource that can be reclaimed for a group (in one account, or in all)."""

    def inqueue_resources(self) -> Mapping[str, int]:
        """Return the minResources of admitted groups that their members do not use yet, by resource."""


class WaitingUnit(Protocol):
    """A unit with a turn of its own: the gangs of a gang group (usually one), or a single pod."""

    @property
    def pod(self) -> PodRecord | None:
        """The single pod, or None."""

    @property
    def gangs(self) -> tuple[GangRecord, ...]:
        """The gangs, or empty for a single pod."""

    @property
    def members(self) -> tuple[GangRecord | PodRecord, ...]:
        """The gangs or the single pod."""

    @property
    def name(self) -> str:
        """Name for users."""


class ActionView(View, Protocol):
    """A cycle as actions see it."""

    @property
    def units(self) -> Sequence[WaitingUnit]:
        """The waiting units, in order."""

    def place(self, units: Iterable[WaitingUnit]) -> None:
        """Give units their turn, as the action `allocate` does: each is placed as a whole, or refused with a
        reason.

        Units that are not in `units` are skipped.
        """

    def out_of_time(self) -> bool:
        """Return whether the time of the cycle is used up; the remaining units then wait for the next cycle."""
