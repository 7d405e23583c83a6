"""The refusal of a unit, and refusals for which nodes and limits do not matter."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import ClassVar, Self

import msgspec

from phalanx.cluster.pods.records import GangRecord, PodRecord
from phalanx.cluster.state import ClusterState
from phalanx.model.gang import GangKey
from phalanx.model.resources import Requests
from phalanx.model.text.quantity import format_quantity
from phalanx.model.verdict import (
    NamedObject,
    Objects,
    Verdict,
    gang_object,
    joined_objects,
    named_nodes,
)

WAITING_FOR_GANG_GROUP = "WaitingForGangGroup"
AWAITING_ADMISSION = "AwaitingAdmission"
WAITING_FOR_LEAVERS = "WaitingForEvictedPods"
BEHIND_IN_QUEUE = "BehindInQueue"

_NODES_NAMED = 5


class Refusal(msgspec.Struct, frozen=True):
    """Facts of a refusal. They hold for every unit with the same wait reason, and give the verdict of each.

    of_nodes: too few nodes take the pods; other members, or members elsewhere, may fit.
    of_account: a limit of an account is exceeded, wherever the pods would be placed.
    of_mates: a gang lacks nothing itself and waits for others of its composite.
    names_no_pod: the verdict is the same for every pod without a gang.
    """

    of_nodes: ClassVar[bool] = False
    of_account: ClassVar[bool] = False
    of_mates: ClassVar[bool] = False
    names_no_pod: ClassVar[bool] = False

    def pod_verdict(self, pod: PodRecord) -> Verdict:
        """Return the verdict on a pod without a gang, or above the minimum of its gang."""
        raise NotImplementedError

    def gang_verdict(self, gang: GangRecord) -> Verdict:
        """Return the verdict on a gang that is refused for these facts."""
        raise NotImplementedError

    def gang_verdict_beside(self, gang: GangRecord, mates: Mapping[GangKey, Verdict]) -> Verdict:
        """Return the verdict on a gang of a composite, in which `mates` have these verdicts."""
        return self.gang_verdict(gang)

    def gang_verdicts(self, gangs: Sequence[GangRecord]) -> Iterable[tuple[GangRecord, Verdict]]:
        """Return the new verdicts on the gangs of a unit; a gang that is left out keeps its verdict."""
        return [(gang, self.gang_verdict(gang)) for gang in gangs]

    def member_verdicts(
        self, gangs: Sequence[GangRecord], state: ClusterState
    ) -> Iterable[tuple[PodRecord, Verdict]]:
        """Return the verdicts on single members of the gangs of a unit."""
        return ()

    def may_be_about(self, gang: GangRecord) -> bool:
        """Return whether a member of the gang may be among the pods that were refused."""
        return True

    def of_subgroup(self, title: str) -> Self:
        """Return the refusal of the subgroup whose members were refused."""
        return self


class GangFault(Refusal, frozen=True, kw_only=True):
    """A refusal for one gang of the unit: that in place `culprit`. Its mates wait for it."""

    culprit: int = 0

    def gang_verdicts(self, gangs: Sequence[GangRecord]) -> Iterable[tuple[GangRecord, Verdict]]:
        culprit = gangs[self.culprit]
        return verdicts_around(gangs, culprit, self.gang_verdict(culprit))


def verdicts_around(
    gangs: Sequence[GangRecord], culprit: GangRecord, verdict: Verdict
) -> Iterable[tuple[GangRecord, Verdict]]:
    """Return the verdict of the gang that cannot start; each of its pending mates waits for it."""
    return [
        (
            gang,
            verdict
            if gang is culprit
            else waiting_for_gang_group(
                gang.title,
                culprit.title,
                verdict.message,
                verdict.change,
                joined_objects((gang_object(gang.key), gang_object(culprit.key)), verdict.objects),
            ),
        )
        for gang in gangs
        if gang is culprit or gang.pending
    ]


class Obstacle(Refusal, frozen=True):
    """A refusal of one gang whose verdict is known, whatever room there is."""

    verdict: Verdict

    def gang_verdict(self, gang: GangRecord) -> Verdict:
        return self.verdict


class Blocked(GangFault, frozen=True):
    """Nothing new may be charged, whatever its size: the queue does not exist or is closed, a budget is spent."""

    code: str
    message: str
    change: str = ""
    objects: Objects = None

    of_account: ClassVar[bool] = True

    def gang_verdict(self, gang: GangRecord) -> Verdict:
        return self._verdict(f"gang {gang.title}", gang_object(gang.key))

    def pod_verdict(self, pod: PodRecord) -> Verdict:
        return self._verdict(f"pod {pod.pod.key}", pod_object(pod))

    def _verdict(self, unit: str, about: NamedObject) -> Verdict:
        return Verdict(
            self.code,
            f"{unit} cannot start: {self.message}",
            unschedulable=False,
            change=self.change,
            objects=joined_objects((about,), self.objects),
        )


class VictimsTerminating(Refusal, frozen=True):
    """Room is held on `nodes` for `held` pods until the `victims` (how many there were at first) have left."""

    victims: int
    held: int
    nodes: tuple[str, ...]

    def gang_verdict(self, gang: GangRecord) -> Verdict:
        return self._verdict(f"gang {gang.title}", gang_object(gang.key))

    def pod_verdict(self, pod: PodRecord) -> Verdict:
        return self._verdict(f"pod {pod.pod.key}", pod_object(pod))

    def _verdict(self, unit: str, about: NamedObject) -> Verdict:
        shown = ", ".join(self.nodes[:_NODES_NAMED])
        more = f" and {len(self.nodes) - _NODES_NAMED} more" if len(self.nodes) > _NODES_NAMED else ""
        return Verdict(
            WAITING_FOR_LEAVERS,
            f"{unit} waits for {self.victims} pod(s) to leave; room for {self.held} pod(s) is held "
            f"on {shown}{more}",
            needed=self.held,
            placeable=self.held,
            change="wait until they have left; a long grace delays it, and finalizers or a node whose kubelet does "
            "not answer keep them",
            objects=(about, *named_nodes(self.nodes[:_NODES_NAMED])),
        )


class BlockedByFifo(Refusal, frozen=True):
    """A queue keeps its order, and the unit `head` before this one has no room yet."""

    queue: str
    head: str
    objects: Objects = None

    def gang_verdict(self, gang: GangRecord) -> Verdict:
        return self._verdict(f"gang {gang.title}", gang_object(gang.key))

    def pod_verdict(self, pod: PodRecord) -> Verdict:
        return self._verdict(f"pod {pod.pod.key}", pod_object(pod))

    def _verdict(self, unit: str, about: NamedObject) -> Verdict:
        return Verdict(
            BEHIND_IN_QUEUE,
            f"{unit} waits behind {self.head} in {self.queue}, which keeps its order (dequeueStrategy fifo)",
            unschedulable=False,
            objects=joined_objects((about,), self.objects),
        )


class NotAdmitted(Refusal, frozen=True):
    """The plugins do not permit the group's controller to make pods yet: what is in the way, what would help, and
    which plugin refuses."""

    message: str = ""
    change: str = ""
    plugin: str = ""

    def gang_verdict(self, gang: GangRecord) -> Verdict:
        spec = gang.spec
        assert spec is not None
        wanted = amounts_text(spec.min_resources or ())
        announced = f"its minResources ({wanted}) exceed what may be promised now"
        message = self.message or (announced if wanted else "the policy lets nothing in now")
        return Verdict(
            AWAITING_ADMISSION,
            f"gang {gang.title} waits to be admitted: {message}",
            unschedulable=False,
            needed=spec.min_member,
            members=gang.counts().present,
            change=self.change or f"wait for other groups to finish{', or lower minResources' if wanted else ''}",
            # A plugin's own words name what they like.
            objects=(gang_object(gang.key),) if not self.message and not self.change else None,
            plugin=self.plugin,
        )

    def gang_verdicts(self, gangs: Sequence[GangRecord]) -> Iterable[tuple[GangRecord, Verdict]]:
        for gang in gangs:
            spec, told = gang.spec, gang.last_verdict[0] if gang.last_verdict is not None else None
            waits = spec is not None and spec.admission and not spec.admitted and not gang.admitted
            if waits and (not told or told.code == AWAITING_ADMISSION):
                yield gang, self.gang_verdict(gang)


def waiting_for_gang_group(gang: str, mate: str, why: str, remedy: str = "", objects: Objects = None) -> Verdict:
    """Return the verdict on a gang whose mate cannot start; `why` and `remedy` are those of the mate."""
    return Verdict(
        WAITING_FOR_GANG_GROUP,
        f"gang {gang} waits for gang {mate} of its gang group: {why}",
        change=f"help gang {mate} first: {remedy}" if remedy else f"create gang {mate}",
        objects=objects,
    )


def pod_object(record: PodRecord) -> NamedObject:
    return NamedObject("Pod", record.pod.name, record.pod.namespace)


def amounts_text(amounts: Requests) -> str:
    return ", ".join(f"{format_quantity(amount, name)} {name}" for name, amount in amounts)
