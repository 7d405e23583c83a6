"""Base classes of refusals, and refusals that depend neither on nodes nor on limits."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import ClassVar, Self

import msgspec

from phalanx.cluster.pods.records import GangRecord, PodRecord
from phalanx.cluster.state import ClusterState
from phalanx.model.gang import GangKey
from phalanx.model.resources import Requests
from phalanx.model.text.counts import count_of, first_of
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
    """Facts of a fit error, shared by all units with the same wait reason. They render the verdict of each unit.

    of_nodes: too few nodes accept the pods; other members, or other domains, can still fit.
    of_account: a limit of an account is exceeded, on every node.
    of_mates: the gang itself can start and waits for other gangs of its composite.
    names_no_pod: the verdict is equal for all pods without a gang.
    """

    of_nodes: ClassVar[bool] = False
    of_account: ClassVar[bool] = False
    of_mates: ClassVar[bool] = False
    names_no_pod: ClassVar[bool] = False

    @property
    def lacks_amounts(self) -> bool:
        """Whether free amounts on some node would help."""
        return False

    def pod_verdict(self, pod: PodRecord) -> Verdict:
        """Return the verdict on a pod without a gang, or above the minimum of its gang."""
        raise NotImplementedError

    def gang_verdict(self, gang: GangRecord) -> Verdict:
        """Return the verdict on a gang that is refused because of these facts."""
        raise NotImplementedError

    def gang_verdict_beside(self, gang: GangRecord, mates: Mapping[GangKey, Verdict]) -> Verdict:
        """Return the verdict on a gang of a composite; `mates` are the verdicts on its other gangs."""
        return self.gang_verdict(gang)

    def gang_verdicts(self, gangs: Sequence[GangRecord]) -> Iterable[tuple[GangRecord, Verdict]]:
        """Return the new verdicts on the gangs of a unit; omitted gangs keep their last verdict."""
        return [(gang, self.gang_verdict(gang)) for gang in gangs]

    def member_verdicts(
        self, gangs: Sequence[GangRecord], state: ClusterState
    ) -> Iterable[tuple[PodRecord, Verdict]]:
        """Return the verdicts on single members of the gangs of a unit."""
        return ()

    def may_be_about(self, gang: GangRecord) -> bool:
        """Return whether the refused pods can include a member of the gang."""
        return True

    def not_found(self, tries: int) -> Self:
        """Return the refusal after a search that ended without a proof after `tries`; 0 with a proof."""
        return self

    def of_subgroup(self, title: str) -> Self:
        """Return the refusal of the subgroup whose members were refused."""
        return self


class GangFault(Refusal, frozen=True, kw_only=True):
    """Refusal of one gang of the unit, at index `culprit`. The other gangs of the unit wait for it."""

    culprit: int = 0

    def gang_verdicts(self, gangs: Sequence[GangRecord]) -> Iterable[tuple[GangRecord, Verdict]]:
        culprit = gangs[self.culprit]
        return verdicts_around(gangs, culprit, self.gang_verdict(culprit))


def verdicts_around(
    gangs: Sequence[GangRecord], culprit: GangRecord, verdict: Verdict
) -> Iterable[tuple[GangRecord, Verdict]]:
    """Return the verdict of the gang that cannot start, and of each other pending gang, which waits for it."""
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
    """Refusal of one gang with a fixed verdict, independent of free resources."""

    verdict: Verdict

    def gang_verdict(self, gang: GangRecord) -> Verdict:
        return self.verdict


class Blocked(GangFault, frozen=True):
    """Account that accepts no new pods of any size: its queue is missing or closed, or its budget is spent."""

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
    """Nomination of `nodes` for `held` pods until the evicted pods, `victims` at first, have terminated."""

    victims: int
    held: int
    nodes: tuple[str, ...]

    def gang_verdict(self, gang: GangRecord) -> Verdict:
        return self._verdict(f"gang {gang.title}", gang_object(gang.key))

    def pod_verdict(self, pod: PodRecord) -> Verdict:
        return self._verdict(f"pod {pod.pod.key}", pod_object(pod))

    def _verdict(self, unit: str, about: NamedObject) -> Verdict:
        return Verdict(
            WAITING_FOR_LEAVERS,
            f"{unit} waits for {count_of(self.victims, 'evicted pod')} to terminate; room for "
            f"{count_of(self.held, 'pod')} is reserved on {first_of(self.nodes, _NODES_NAMED)}",
            needed=self.held,
            placeable=self.held,
            change="wait until they terminate; if they do not, check their grace period, their finalizers and the "
            "kubelets of their nodes",
            objects=(about, *named_nodes(self.nodes[:_NODES_NAMED])),
        )


class BlockedByFifo(Refusal, frozen=True):
    """Queue with strict order whose first unit, `head`, does not fit yet."""

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
            f"{unit} waits behind {self.head}, which does not fit yet: {self.queue} has dequeueStrategy fifo, "
            "by its spec or the policy",
            unschedulable=False,
            objects=joined_objects((about,), self.objects),
        )


class NotAdmitted(Refusal, frozen=True):
    """Group whose controller is not permitted to create pods yet: the reason, the fix and the refusing plugin."""

    message: str = ""
    change: str = ""
    plugin: str = ""

    def gang_verdict(self, gang: GangRecord) -> Verdict:
        spec = gang.spec
        assert spec is not None
        wanted = amounts_text(spec.min_resources or ())
        name = "requests" if spec.generated else "minResources"
        announced = f"its {name} ({wanted}) exceed the amounts that can be admitted now"
        message = self.message or (announced if wanted else "the policy admits no group now")
        lower = ", or lower minResources" if wanted and not spec.generated else ""
        change = self.change or f"wait until other groups finish{lower}"
        if spec.suspended:
            message, change = "its owner is suspended", "resume its owner"
        return Verdict(
            AWAITING_ADMISSION,
            f"gang {gang.title} is not admitted: {message}",
            unschedulable=False,
            needed=spec.min_member,
            members=gang.counts().present,
            change=change,
            # The text of a plugin contains arbitrary names.
            objects=(gang_object(gang.key),) if not self.message and not self.change else None,
            plugin=self.plugin,
        )

    def gang_verdicts(self, gangs: Sequence[GangRecord]) -> Iterable[tuple[GangRecord, Verdict]]:
        for gang in gangs:
            spec, last = gang.spec, gang.last_verdict[0] if gang.last_verdict is not None else None
            waits = spec is not None and spec.admission and not gang.may_create_pods
            if waits and (not last or last.code == AWAITING_ADMISSION):
                yield gang, self.gang_verdict(gang)


def waiting_for_gang_group(gang: str, mate: str, why: str, remedy: str = "", objects: Objects = None) -> Verdict:
    """Return the verdict on a gang that waits for `mate`; `why` and `remedy` are of the verdict on `mate`."""
    return Verdict(
        WAITING_FOR_GANG_GROUP,
        f"gang {gang} waits for gang {mate} of its gang group: {why}",
        change=f"first fix gang {mate}: {remedy}" if remedy else f"create gang {mate}",
        objects=objects,
    )


def pod_object(record: PodRecord) -> NamedObject:
    return NamedObject("Pod", record.pod.name, record.pod.namespace)


def amounts_text(amounts: Requests) -> str:
    return ", ".join(f"{format_quantity(amount, name)} {name}" for name, amount in amounts)
