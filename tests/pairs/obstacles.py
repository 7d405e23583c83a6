"""Features that close nodes to the job or evict it, whatever its form."""

from __future__ import annotations

from phalanx.model.advance_reservation import AdvanceReservation, ReservedNodes
from phalanx.model.decisions import EvictionReason
from phalanx.model.events import (
    AdvanceReservationRemoved,
    AdvanceReservationUpdated,
    MaintenanceWindowRemoved,
    MaintenanceWindowUpdated,
)
from phalanx.model.maintenance import AtStart, MaintenanceWindow
from phalanx.model.pod import PodClass
from phalanx.model.run_time import RunTime
from phalanx.scheduling.reservations.advance_grant import GrantPhase

from ..scheduling.features import starts
from .feature import NO_ROOM, Feature
from .job import PRIORITY, QUEUE, Form, Job
from .world import RACKS, SLOTS, World

FAR = 10**6


class Preempt(Feature):
    """The pods on the rack have a lower priority: the job waits until its victims have terminated."""

    name = "preempt"
    reasons = frozenset({"WaitingForEvictedPods"})

    def obstruct(self, world: World, rack: str, form: Form) -> None:
        self.fill(world, rack, SLOTS, SLOTS, priority=0, queue=QUEUE)

    def clear(self, world: World, rack: str) -> None:
        world.leave()
        super().clear(world, rack)


class Reclaim(Feature):
    """The pods on the rack are in a queue that borrows: they are reclaimed, and so is the job when it borrows."""

    name = "reclaim"
    reasons = frozenset({"WaitingForEvictedPods"})
    evicts = EvictionReason.RECLAIMED

    def prepare(self, world: World) -> None:
        world.queue(QUEUE, deserved={"cpu": 8}).queue("lender", deserved={"cpu": 8})
        world.queue("borrower", deserved={"cpu": 0}).queue("other", deserved={"cpu": 16})

    def obstruct(self, world: World, rack: str, form: Form) -> None:
        self.fill(world, rack, SLOTS, SLOTS, queue="borrower")

    def clear(self, world: World, rack: str) -> None:
        world.leave()
        super().clear(world, rack)

    def evict(self, world: World, job: Job) -> None:
        world.queue(QUEUE, deserved={"cpu": 0})
        for rack in sorted(job.racks):
            self.need_rack(world, f"claim-{rack}-{world.now}", rack, priority=PRIORITY, queue="lender")

    def release(self, world: World) -> None:
        self.remove(world, "claim")
        world.queue(QUEUE, deserved={"cpu": 8})


class StartReservation(Feature):
    """The pods on the rack end at a known time: the job is promised a start, which a restart does not move."""

    name = "start reservation"
    reserves_starts = True
    SECONDS = 100

    def __init__(self) -> None:
        self._end = 0

    def obstruct(self, world: World, rack: str, form: Form) -> None:
        self._end = world.now + self.SECONDS
        more = {"run_time": RunTime(self.SECONDS), "grace": 0, "started": world.now, "bound": world.now}
        self.fill(world, rack, SLOTS, SLOTS, pod_class=PodClass(run_limit=self.SECONDS), more=more)

    def clear(self, world: World, rack: str) -> None:
        world.pass_time(self.SECONDS)

    def check(self, world: World, job: Job) -> None:
        plan = starts(world.scheduler).plan
        assert plan is not None
        for promise in plan.all():
            assert promise.start >= world.now, f"{promise.name} has not started at its promised time"
            # Until the pods on the rack end, their end is the earliest start.
            assert promise.start <= self._end or world.now >= self._end, f"{promise.name}: {promise.start}"
        planned = len(job.form.gangs) == 1  # no start is planned for composites
        if planned and job.waits and world.now < self._end and job.reasons <= NO_ROOM:
            assert [each for each in plan.all() if "job" in each.name], "the waiting job is promised no start"


class AdvanceReservations(Feature):
    """The nodes of the rack are reserved for pods that name the reservation."""

    name = "advance reservation"

    def obstruct(self, world: World, rack: str, form: Form) -> None:
        name, nodes = f"keep-{rack}", ReservedNodes(RACKS[rack])
        uid, end = f"uid-{name}-{world.now}", world.now + FAR
        made = AdvanceReservation(name, uid, nodes=nodes, start=world.now, end=end, asks=rack)
        world.observe(f"reservation {name}", AdvanceReservationUpdated(made))

    def clear(self, world: World, rack: str) -> None:
        world.observe(f"reservation keep-{rack}", AdvanceReservationRemoved(f"keep-{rack}"))

    def check(self, world: World, job: Job) -> None:
        """Check that the grant is in force and that the job is not on its nodes."""
        for name, grant in starts(world.scheduler).advance_grants().items():
            assert grant.phase is GrantPhase.AVAILABLE, f"{name} is {grant.phase}"
            assert sorted(grant.nodes) == list(RACKS[name[-1]])
            assert name[-1] not in job.racks


class Maintenance(Feature):
    """The nodes of the rack are in maintenance, and later those under the job."""

    name = "maintenance"
    evicts = EvictionReason.REVOKED

    def obstruct(self, world: World, rack: str, form: Form) -> None:
        self._begin(world, f"work-{rack}", RACKS[rack], AtStart.CORDON)

    def clear(self, world: World, rack: str) -> None:
        self._end(world, f"work-{rack}")

    def evict(self, world: World, job: Job) -> None:
        nodes = tuple(node for rack in sorted(job.racks) for node in RACKS[rack])
        self._begin(world, "repair", nodes, AtStart.EVICT)

    def release(self, world: World) -> None:
        self._end(world, "repair")

    def check(self, world: World, job: Job) -> None:
        for window in world.state.nodes.maintenance.windows.values():
            assert not job.racks & {name[0] for name in window.names}, f"the job is on nodes of {window.name}"

    def _begin(self, world: World, name: str, nodes: tuple[str, ...], at_start: AtStart) -> None:
        uid, end = f"uid-{name}-{world.now}", world.now + FAR
        made = MaintenanceWindow(name, uid, nodes, start=world.now, end=end, at_start=at_start)
        world.observe(f"window {name}", MaintenanceWindowUpdated(made))

    def _end(self, world: World, name: str) -> None:
        if name in world.state.nodes.maintenance.windows:
            world.observe(f"window {name}", MaintenanceWindowRemoved(name))


class NodeBackoff(Feature):
    """The kubelets of the rack have rejected pods."""

    name = "node back-off"
    SECONDS = 30

    def __init__(self) -> None:
        self._end = 0

    def obstruct(self, world: World, rack: str, form: Form) -> None:
        self._end, self._rack = world.now + self.SECONDS, rack
        for node in RACKS[rack]:
            world.rejects(node)

    def clear(self, world: World, rack: str) -> None:
        world.pass_time(max(0, self._end - world.now))

    def check(self, world: World, job: Job) -> None:
        assert world.now >= self._end or self._rack not in job.racks, "the job is on a node in back-off"


class NominatedPods(Feature):
    """Pods of another scheduler are nominated for all of the rack."""

    name = "nominated pods"

    def obstruct(self, world: World, rack: str, form: Form) -> None:
        for node in RACKS[rack]:
            self.fill_node(world, node, cpu=SLOTS, node="", nominated=node, scheduler="another")

    def check(self, world: World, job: Job) -> None:
        for record in world.state.pods.values():
            if record.pod.scheduler == "another":
                assert record.pod.nominated_node[0] not in job.racks, f"the job has the room of {record.pod.name}"


class Resize(Feature):
    """Pods grow in place until they fill the rack, and shrink again; a member of the job grows as well."""

    name = "resize"

    def obstruct(self, world: World, rack: str, form: Form) -> None:
        self.fill(world, rack, 1, 1)
        for uid in self.fillers(world, rack):
            self._resize(world, uid, SLOTS)

    def clear(self, world: World, rack: str) -> None:
        for uid in self.fillers(world, rack):
            self._resize(world, uid, 1)

    def started(self, world: World, job: Job) -> None:
        """Let a member grow by one CPU where its node has one."""
        fitting = [uid for uid in job.placed if world.cpus_of(world.where(uid)) < SLOTS]
        if fitting:
            self._resize(world, fitting[0], 2)

    def check(self, world: World, job: Job) -> None:
        for rack in RACKS.values():
            for node in rack:
                assert world.cpus_of(node) <= SLOTS, f"{node} is overcommitted"

    def _resize(self, world: World, uid: str, cpu: int) -> None:
        usage = dict(world.state.pods[uid].pod.usage) | {"cpu": cpu * 1000}
        world.becomes(uid, usage=tuple(sorted(usage.items())))
