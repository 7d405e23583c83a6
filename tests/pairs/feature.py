"""A feature of a pair, and parts of worlds that all features use."""

from __future__ import annotations

from typing import Any, ClassVar

from phalanx.model.decisions import EvictionReason
from phalanx.model.pod import PodClass

from .job import PRIORITY, QUEUE, Form, Job
from .world import HOST, RACKS, SLOTS, World

NO_ROOM = frozenset({"NotEnoughResources", "NoEligibleNode"})
URGENT = 1000


class Feature:
    """One feature of a pair: it shapes the job, obstructs a rack, and evicts the job.

    By default it changes nothing of the job, it obstructs a rack with pods that are no victims, and the job is
    evicted for a gang of higher priority. `reasons` are the codes with which the job waits for it, `evicts` is the
    reason of its evictions.
    """

    name: ClassVar[str]
    reasons: ClassVar[frozenset[str]] = NO_ROOM
    evicts: ClassVar[EvictionReason] = EvictionReason.PREEMPTED
    reserves_starts: ClassVar[bool] = False

    def shape(self, form: Form) -> None:
        """Change the form of the job."""

    def prepare(self, world: World) -> None:
        """Declare objects of the cluster."""

    def obstruct(self, world: World, rack: str, form: Form) -> None:
        """Close a rack to the job."""
        self.fill(world, rack, SLOTS, SLOTS)

    def clear(self, world: World, rack: str) -> None:
        """Open the rack again."""
        self.remove(world, f"fill-{rack}")

    def started(self, world: World, job: Job) -> None:
        """Act once the job runs."""

    def evict(self, world: World, job: Job) -> None:
        """Cause the eviction of the whole job."""
        for rack in sorted(job.racks):
            self.need_rack(world, f"urgent-{rack}-{world.now}", rack, priority=URGENT, queue=QUEUE)

    def release(self, world: World) -> None:
        """End the cause of the eviction."""
        self.remove(world, "urgent")

    def check(self, world: World, job: Job) -> None:
        """Check the invariants of the feature."""

    # parts of worlds

    def fill(self, world: World, rack: str, *cpus: int, **fields: Any) -> None:
        """Run a pod with so many CPUs on each node of a rack."""
        for node, cpu in zip(RACKS[rack], cpus, strict=True):
            self.fill_node(world, node, cpu=cpu, **fields)

    def fill_node(self, world: World, at: str, **fields: Any) -> None:
        defaults: dict[str, Any] = {"node": at, "priority": PRIORITY, "queue": "other"}
        world.pod(f"fill-{at}-{world.now}", **defaults | fields)

    def fillers(self, world: World, rack: str = "") -> list[str]:
        return [uid for uid in world.state.pods if uid.startswith(f"fill-{rack}")]

    def remove(self, world: World, prefix: str) -> None:
        """Delete the pods and gangs whose names begin with `prefix`."""
        for uid in [uid for uid in world.state.pods if uid.startswith(prefix)]:
            world.gone(uid)
        for gang in [gang.key.name for gang in world.state.gangs.values() if gang.key.name.startswith(prefix)]:
            world.no_gang(gang)

    def need_rack(self, world: World, name: str, rack: str, **fields: Any) -> None:
        """Submit a gang with a pod for each node of a rack, of all CPUs that the fillers leave there."""
        free = dict.fromkeys(RACKS[rack], SLOTS)
        for uid in self.fillers(world, rack):
            pod = world.state.pods[uid].pod
            if pod.node:
                free[pod.node] -= dict(pod.usage).get("cpu", 0) // 1000
        free = {node: cpu for node, cpu in free.items() if cpu}
        world.gang(name, len(free), created=world.now, queue=fields["queue"])
        for node, cpu in free.items():
            world.pod(
                f"{name}-{node}", gang=name, cpu=cpu, pod_class=PodClass(node_selector=((HOST, node),)), **fields
            )
