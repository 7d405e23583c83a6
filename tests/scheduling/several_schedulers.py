"""Several schedulers over one cluster, each with node pools of its own and queues in common, in simulation.

The protocol is the one of docs/scale.md. The API server is the arbiter: it takes a write of the claims only from
whoever has read the last ones (a resourceVersion as precondition), and each binding once.
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
    """What `owner` is about to bind: the pod as it will be. `bound` is the version at which the API server had
    bound it, 0 before."""

    owner: str
    pod: Pod
    bound: int = 0


class Claims(msgspec.Struct, frozen=True):
    """The object that the schedulers have in common. `seen` says up to which version each has watched pods."""

    version: int = 0
    entries: dict[str, Claim] = {}
    seen: dict[str, int] = {}


class ConflictError(Exception):
    """Somebody else has written since: nothing was."""


class Api:
    """The truth, and its history as watches tell it."""

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
        """Whether it was bound: a pod that is gone, or bound already, is not."""
        known = self.pods.get(uid)
        if known is None or known.node:
            return False
        self.put(msgspec.structs.replace(known, node=node, mark=pod.mark, phase=PodPhase.RUNNING))
        return True

    def write_claims(self, entries: dict[str, Claim], seen: dict[str, int], read: int) -> Claims:
        """Raises ConflictError where `read` is not the version that is there."""
        if read != self.claims.version:
            raise ConflictError
        self.claims = Claims(read + 1, entries, seen)
        return self.claims


class Replica:
    """One scheduler: what it has watched and read so far, and what it has still to post."""

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
        """The next events of the history arrive."""
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
        """Tells the planner of a pod: what was watched, and while it has no node what somebody else has claimed."""
        pod, claim = self._known.get(uid), self.read.entries.get(uid)
        others = claim is not None and claim.owner != self.name and (pod is None or not pod.node)
        # Of one that was bound and is gone again nothing is left to count.
        if claim is not None and others and not (claim.bound and self.watched >= claim.bound):
            pod = claim.pod
        if pod is not None and pod.scheduler != self.name:
            # Accounts are charged for the pods of our own names: those of the others count once they have a place.
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
        """One cycle; what it decided is claimed in one write, or not at all. Whether something was claimed."""
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
        """One binding is sent, and answered."""
        pod = self.posts.pop(uid)
        known = self.state.pods.get(uid)
        if not self.api.bind(uid, pod.node, pod) and known is not None and known.state is MemberState.ASSUMED:
            self.state.pods.binding_failed(uid)

    def tidy(self) -> bool:
        """Says how far it has watched, when its claims were bound, and takes away those that everybody has seen
        bound, or that nothing will come of. Whether there was something to say."""
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
                del entries[uid]  # the binding was refused: nobody will ever see it
        if entries == self.read.entries and (not entries or seen == self.read.seen):
            return False
        try:
            self._write(entries, seen)
        except ConflictError:
            self.read_claims()
        return True

    def restart(self) -> None:
        """A new process lists everything, and knows of nothing that its predecessor was about to post."""
        self._start()
        self.watch(self.api.version)
        for uid in self.read.entries:
            self._show(uid)

    def _bound_at(self, uid: str) -> int:
        """When a pod was bound, from the answer of the API server (here from its history); 0 for never."""
        versions = [at for at, (name, pod) in enumerate(self.api.history, 1) if name == uid and pod and pod.node]
        return versions[0] if versions else 0

    def _write(self, entries: dict[str, Claim], seen: dict[str, int] | None = None) -> None:
        seen = self.read.seen if seen is None else seen
        self.read = self.api.write_claims(entries, seen, self.read.version)


class SharedCluster:
    """Two replicas, each with its nodes, and queues in common. Looks after each step whether all still holds."""

    def __init__(self, claiming: bool = True, nodes: int = 2, cpu: int = 4, capability: int = 6) -> None:
        self.api = Api()
        self.now = 1000
        self.capability = amounts(cpu=capability)
        self.capacity: dict[str, int] = {}
        self.sizes: dict[str, int] = {}
        self._claiming = claiming
        # Whoever takes part says so before he plans: else others would take away what he has not seen.
        self.api.claims = Claims(seen={"a": 0, "b": 0})
        self.replicas: dict[str, Replica] = {}
        for name in ("a", "b"):
            describe = Scenario(POLICY)
            for queue in ("red", "blue"):
                describe.queue(queue, capability={"cpu": capability})
            for pool in ("a", "b"):
                for number in range(nodes):
                    # The nodes of the other's pool are there, and closed.
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
        """No node and no queue has more than it allows, whoever bound it."""
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
        """Everything is delivered, read, planned and posted until nothing moves."""
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
