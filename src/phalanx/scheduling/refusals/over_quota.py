"""Refusal because a limit of a queue or quota would be exceeded."""

from __future__ import annotations

from typing import ClassVar

from phalanx.cluster.account_objects import account_objects
from phalanx.cluster.accounts import AccountRecord
from phalanx.cluster.pods.records import GangRecord, PodRecord
from phalanx.model.gang import share_of
from phalanx.model.text.quantity import format_alike, format_quantity
from phalanx.model.verdict import Objects, Verdict, gang_object, joined_objects
from phalanx.scheduling.refusals.no_room import NOT_ENOUGH_RESOURCES, to_come
from phalanx.scheduling.refusals.refusal import GangFault

QUOTA_EXCEEDED = "QuotaExceeded"


class OverQuota(GangFault, frozen=True, cache_hash=True):
    """Limit of a queue or quota that one more pod would exceed: `used + wanted > limit` of `resource`.

    Amounts are in the resource's units. `kept` is reserved for units that start before this one would end. `placed`
    of `need` members are within the limits. `beyond` is (resource, amount that the gang needs, smaller amount that
    all nodes together offer). With `nodes_help` an autoscaler is to create nodes, which raises the limit.
    """

    account: AccountRecord
    word: str
    resource: str
    limit: int
    used: int
    wanted: int
    change: str = ""
    hint: str = ""
    computed: bool = False
    placed: int = 0
    need: int = 1
    kept: int = 0
    beyond: tuple[str, int, int] | None = None
    nodes_help: bool = False

    of_account: ClassVar[bool] = True
    names_no_pod: ClassVar[bool] = True

    def pod_verdict(self, pod: PodRecord) -> Verdict:
        message, change = self._sentence_and_change()
        return Verdict(
            QUOTA_EXCEEDED, message, self.nodes_help, needed=1, members=1, change=change, objects=self._objects
        )

    def gang_verdict(self, gang: GangRecord) -> Verdict:
        message, change = self._sentence_and_change()
        if self.beyond is not None:
            return self._beyond_all_nodes(self.beyond, gang, message)
        verb = "is" if self.need == 1 else "are"
        return Verdict(
            QUOTA_EXCEEDED,
            f"{share_of(self.placed, self.need)} of gang {gang.title}{to_come(gang)} {verb} within quota; "
            f"{message}",
            unschedulable=self.nodes_help,
            needed=self.need,
            placeable=self.placed,
            members=gang.counts().present,
            change=change,
            objects=joined_objects((gang_object(gang.key),), self._objects),
        )

    @property
    def _objects(self) -> Objects:
        """Return the queue or quota and its ancestors; None with a hint, which names unknown objects."""
        return account_objects(self.account) if not self.hint else None

    def _beyond_all_nodes(self, beyond: tuple[str, int, int], gang: GangRecord, over_limit: str) -> Verdict:
        """Return the verdict on a gang that needs more than all nodes offer: a higher limit would not help."""
        name, needed, offered = beyond
        wanted, offers, missing = format_alike(name, needed, offered, needed - offered)
        change = f"add nodes that offer at least {missing} more {name}"
        if name == self.resource and 0 < self.limit < offered and not self.computed:
            change = f"request at most {format_quantity(self.limit, name)} {name}"
        return Verdict(
            NOT_ENOUGH_RESOURCES,
            f"gang {gang.title} needs {wanted} {name}{to_come(gang)}; all nodes together offer {offers}; also, "
            f"{over_limit}",
            # More nodes do not raise a limit that a user has declared.
            unschedulable=self.computed,
            needed=self.need,
            placeable=self.placed,
            members=gang.counts().present,
            change=change,
            objects=joined_objects((gang_object(gang.key),), self._objects),
        )

    def _sentence_and_change(self) -> tuple[str, str]:
        name, label = self.resource, self.account.label
        used, wanted, limit = format_alike(name, self.used, self.wanted, self.limit)
        kept = (
            f" and {format_quantity(self.kept, name)} reserved for units that start before this one would end"
            if self.kept
            else ""
        )
        message = f"{label}: {used} {name} in use{kept}, {self.word} {limit}; {wanted} more would exceed it"
        over, ways = self.used + self.kept + self.wanted - self.limit, []
        if over <= self.used:
            ways.append(f"free {format_quantity(over, name)} {name} charged to {label}")
        if self.change:
            ways.append(f"{self.change} to {format_quantity(self.used + self.wanted, name)}")
        if self.hint:
            ways.append(self.hint)
        if self.kept:
            ways.append("set a run-time limit that ends before they start")
        if not ways and self.computed:
            ways.append("wait until other queues request less, or add nodes")
        if not ways and self.limit > 0:
            ways.append(f"request at most {limit} {name}")
        return message, ", or ".join(ways)
