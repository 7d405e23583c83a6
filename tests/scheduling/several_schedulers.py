"""Several schedulers over one cluster, each with node pools of its own and shared queues, in simulation.

The protocol is the one of docs/scale.md. The API server is the arbiter: it accepts a write of the claims only
from
a scheduler that has read the latest version (a resourceVersion as precondition), and each binding once.
"""

from __future__ import annotations

import msgspec

from phalanx.cluster.state import ClusterState
from phalanx.model.events import PodRemoved, PodUpdated
from phalanx.model.pod import MemberState, Pod, PodPhase
from phalanx.scheduling.scheduler import Scheduler

from .scenario import Scenario, amounts

POLICY = """
actions: "allocate, backfill"
tiers:
- plugins: [{name: priority}, {name: gang}]
- plugins: [{name: capacity}, {name: predicates}, {name: binpack}]
"""


class Claim(msgspec.Struct, frozen=True):
    """Pod that `owner` plans to bind, in its bound form. `bound` is the version of its binding at the API server, 0
    before.
    """

    owner: str
    pod: Pod
    bound: int = 0


class Claims(msgspec.Struct, frozen=True):
    """Object that the schedulers share. `seen` is the version up to which each scheduler has watched pods."""

    version: int = 0
    entries: dict[str, Claim] = {}
    seen: dict[str, int] = {}


class ConflictError(Exception):
    """Conflict with another writer: nothing was written."""


class Api:
    """The API server: objects, and their history as watches deliver it."""

    def __init__(self) -> None:
        self.pods: dict[str, Pod] = {}
        self.history: list[tuple[str, Pod | None]] = []
        self.claims = Claims()

    @property
    def version(self) -> int:
        return len(self.history)

    def put(self, pod: Pod) -> None:
        self.pods[pod.uid] = pod
        self.history.append((pod.uid, pod))

    def delete(self, uid: str) -> None:
        if self.pods.pop(uid, None) is not None:
            self.history.append((uid, None))

    def bind(self, uid: str, node: str, pod: Pod) -> bool:
        """Return whether the binding succeeded: a deleted or bound pod is rejected."""
        known = self.pods.get(uid)
        if known is None or known.node:
            return False
        self.put(msgspec.structs.replace(known, node=node, mark=pod.mark, phase=PodPhase.RUNNING))
        return True

    def write_claims(self, entries: dict[str, Claim], seen: dict[str, int], read: int) -> Claims:
        """Write the claims. Raise ConflictError where `read` is not the current version."""
        if read != self.claims.version:
            raise ConflictError
        self.claims = Claims(read + 1, entries, seen)
        return self.claims


class Replica:
    """One scheduler: its watched and read state, and its unsent bindings."""

    def __init__(self, name: str, api: Api, describe: Scenario, claiming: bool = True) -> None:
        self.name = name
        self.api = api
        self.claiming = claiming
        self._describe = describe
        self._start()

    def _start(self) -> None:
        self.state = ClusterState((self.name,))
        self.scheduler = Scheduler(self.state, self._describe.policy)
        for event in self._describe.events:
            self.state.apply(event)
        self.watched = 0
        self.read = self.api.claims
        self._shown: dict[str, Pod] = {}
        self._known: dict[str, Pod] = {}
        self.posts: dict[str, Pod] = {}

    def watch(self, events: int) -> None:
        """Deliver the next events of the history."""
        for uid, pod in self.api.history[self.watched : self.watched + events]:
            self.watched += 1
            if pod is None:
                self._known.pop(uid, None)
            else:
                self._known[uid] = pod
            self._show(uid)

    def read_claims(self) -> None:
        last, self.read = self.read, self.api.claims
        for uid in sorted(last.entries.keys() | self.read.entries.keys()):
            self._show(uid)

    def _show(self, uid: str) -> None:
        """Pass a pod to the planner: its watched state or, while it has no node, another scheduler's claim for
        it.
        """
        pod, claim = self._known.get(uid), self.read.entries.get(uid)
        others = claim is not None and claim.owner != self.name and (pod is None or not pod.node)
        # A pod that was bound and deleted no longer counts.
        if claim is not None and others and not (claim.bound and self.watched >= claim.bound):
            pod = claim.pod
        if pod is not None and pod.scheduler != self.name:
            # Accounts are charged for pods of our own scheduler names; pods of other schedulers count once they
            # have a node.
            pod = msgspec.structs.replace(pod, scheduler=self.name) if pod.node else None
        if pod == self._shown.get(uid):
            return
        if pod is None:
            del self._shown[uid]
            self.state.apply(PodRemoved(uid))
        else:
            self._shown[uid] = pod
            self.state.apply(PodUpdated(pod))

    def plan(self, now: int) -> bool:
        """Run one cycle and claim its decisions in one write or not at all. Return whether a claim was written."""
        self.scheduler.activate_due(now)
        plan = self.scheduler.cycle(now)
        if not plan.binds:
            return False
        made = {}
        for bind in plan.binds:
            record = self.state.pods[bind.uid]
            made[bind.uid] = msgspec.structs.replace(record.pod, node=bind.node, mark=bind.mark)
        if self.claiming:
            entries = {uid: Claim(self.name, pod) for uid, pod in made.items()}
            try:
                self._write({**self.read.entries, **entries})
            except ConflictError:
                for uid in made:
                    self.state.pods.binding_failed(uid)
                self.read_claims()
                return False
        self.posts |= made
        return True

    def post(self, uid: str) -> None:
        """Send one binding and process its answer."""
        pod = self.posts.pop(uid)
        known = self.state.pods.get(uid)
        if not self.api.bind(uid, pod.node, pod) and known is not None and known.state is MemberState.ASSUMED:
            self.state.pods.binding_failed(uid)

    def tidy(self) -> bool:
        """Publish the version watched so far and the versions of bound claims. Remove claims that every scheduler
        has seen bound or that failed. Return whether the object changed.
        """
        self.read_claims()
        seen = {**self.read.seen, self.name: self.watched}
        others = [version for name, version in seen.items() if name != self.name]
        entries = dict(self.read.entries)
        for uid, claim in self.read.entries.items():
            if claim.owner != self.name or uid in self.posts:
                continue
            bound = claim.bound or self._bound_at(uid)
            if bound and all(version >= bound for version in others):
                del entries[uid]
            elif bound:
                entries[uid] = msgspec.structs.replace(claim, bound=bound)
            else:
                del entries[uid]  # the binding was rejected: no scheduler will see this pod bound
        if entries == self.read.entries and (not entries or seen == self.read.seen):
            return False
        try:
            self._write(entries, seen)
        except ConflictError:
            self.read_claims()
        return True

    def restart(self) -> None:
        """Start a new process: it lists everything and does not know its predecessor's unsent bindings."""
        self._start()
        self.watch(self.api.version)
        for uid in self.read.entries:
            self._show(uid)

    def _bound_at(self, uid: str) -> int:
        """Return the version at which a pod was bound, from the API server's history; 0 for never."""
        versions = [at for at, (name, pod) in enumerate(self.api.history, 1) if name == uid and pod and pod.node]
        return versions[0] if versions else 0

    def _write(self, entries: dict[str, Claim], seen: dict[str, int] | None = None) -> None:
        seen = self.read.seen if seen is None else seen
        self.read = self.api.write_claims(entries, seen, self.read.version)


class SharedCluster:
    """Two replicas, each with its nodes, and shared queues. Check the invariants after each step."""

    def __init__(self, claiming: bool = True, nodes: int = 2, cpu: int = 4, capability: int = 6) -> None:
        self.api = Api()
        self.now = 1000
        self.capability = amounts(cpu=capability)
        self.capacity: dict[str, int] = {}
        self.sizes: dict[str, int] = {}
        self._claiming = claiming
        # A scheduler registers before it plans: else other schedulers would remove claims that it has not seen.
        self.api.claims = Claims(seen={"a": 0, "b": 0})
        self.replicas: dict[str, Replica] = {}
        for name in ("a", "b"):
            describe = Scenario(POLICY)
            for queue in ("red", "blue"):
                describe.queue(queue, capability={"cpu": capability})
            for pool in ("a", "b"):
                for number in range(nodes):
                    # The nodes of the other pool exist, and are closed.
                    describe.node(f"{pool}{number}", cpu=cpu, unschedulable=pool != name)
                    self.capacity[f"{pool}{number}"] = dict(amounts(cpu=cpu))["cpu"]
            self.replicas[name] = Replica(name, self.api, describe, claiming)

    def job(self, name: str, scheduler: str, members: int, cpu: int, queue: str) -> None:
        self.sizes[name] = members
        for replica in self.replicas.values():
            describe = replica._describe
            describe.gang(name, members, queue=queue, created=self.now)
            replica.state.apply(describe.events[-1])
        maker = Scenario(POLICY)
        for number in range(members):
            maker.pod(f"{name}-{number}", gang=name, scheduler=scheduler, queue=queue, cpu=cpu, created=self.now)
        for record in maker.state.pods.values():
            self.api.put(record.pod)

    def check(self) -> None:
        """Check that no node and no queue exceeds its limit, whichever scheduler bound the pods."""
        nodes: dict[str, int] = {}
        queues: dict[str, int] = {}
        for pod in self.api.pods.values():
            if pod.node:
                asked = dict(pod.pod_class.requests)["cpu"]
                nodes[pod.node] = nodes.get(pod.node, 0) + asked
                queue = self.queue_of(pod)
                queues[queue] = queues.get(queue, 0) + asked
        for node, used in nodes.items():
            assert used <= self.capacity[node], f"node {node} has {used} of {self.capacity[node]}"
        for queue, used in queues.items():
            most = dict(self.capability)["cpu"]
            assert used <= most, f"queue {queue} has {used} of {most}"

    def queue_of(self, pod: Pod) -> str:
        return pod.queue

    def settle(self) -> None:
        """Deliver, read, plan and send until nothing changes."""
        for _ in range(60):
            moved = False
            for replica in self.replicas.values():
                replica.watch(self.api.version)
                replica.read_claims()
                self.now += 1
                moved |= replica.plan(self.now)
                for uid in list(replica.posts):
                    replica.post(uid)
                    moved = True
                    self.check()
                replica.watch(self.api.version)
                moved |= self._claiming and replica.tidy()
            if not moved:
                return
        raise AssertionError("it does not come to rest")

    def gangs_are_whole(self) -> None:
        for name, size in self.sizes.items():
            members = [pod for uid, pod in self.api.pods.items() if uid.rpartition("-")[0] == name]
            bound = sum(bool(pod.node) for pod in members)
            assert bound in (0, len(members)), f"gang {name}: {bound} of {size} are bound"
