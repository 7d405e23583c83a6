"""A model of a hub, its record, three clusters and their schedulers, in which any event may fall between two
writes.

Hub processes decide by the real protocol, from caches that may be old; their writes may arrive late, twice from
their view, or never, also after their death. Clusters can be cut off, and be restored from a backup.
"""

from __future__ import annotations

import contextlib
import copy
import itertools
import random
from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec

from phalanx.hub import protocol
from phalanx.hub.dispatch import Dispatch, DispatchStatus, GangReference, Phase
from phalanx.hub.observed import ClusterView, CopyView, LostPolicy, OriginGang, OriginPod
from phalanx.hub.protocol import Step

CLUSTERS = ("east", "north", "west")
RUNNING, SUCCEEDED, FAILED, PENDING = "Running", "Succeeded", "Failed", "Pending"


@dataclass
class Copy:
    name: str
    uid: str
    origin_uid: str
    epoch: int
    gated: bool = True
    phase: str = PENDING
    deleting: bool = False
    held: bool = True
    version: int = 0  # another with every change
    restored: bool = False  # the pod ran at the time of the backup: kubelets restart it without a check

    @property
    def ended(self) -> bool:
        return self.phase in (SUCCEEDED, FAILED)


@dataclass
class Origin:
    name: str
    uid: str
    phase: str = PENDING
    version: int = 0

    @property
    def ended(self) -> bool:
        return self.phase in (SUCCEEDED, FAILED)


@dataclass
class Backup:
    copies: dict[str, Copy]
    group: str
    lease: int


@dataclass
class Cluster:
    name: str
    copies: dict[str, Copy] = field(default_factory=dict)  # by name
    group: str = ""
    lease: int = 0
    fresh: bool = False  # the scheduler has seen a renewal since it, or its read, began
    cut: bool = False
    backup: Backup | None = None
    restores: int = 0


class NoAnswerError(Exception):
    """The answer never came."""


class World:
    """A world of the model.

    `without` omits one of the rules, to show that the model detects it: "fence" (a restored scheduler trusts
    its lease), "list" (deleted copies are forgotten), "swap" (the record is written blindly), "version" (a gang
    is recalled whatever its state).
    """

    def __init__(
        self, seed: int, policy: LostPolicy, hubs: int = 2, pods: int = 2, without: str = "", spills: float = 0.0
    ) -> None:
        self.without = without
        self.spills = spills  # how likely a look finds that it would start sooner elsewhere
        self.recalled_running = 0
        self.pace = 0.02  # how likely a pod ends in a moment
        self.random = random.Random(seed)
        self.policy = policy
        self.ids = itertools.count(1)
        self.now = 1000
        self.record: Dispatch | None = None
        self.exists, self.suspended = True, False
        self.origins = {f"w-{n}": Origin(f"w-{n}", f"o-{n}") for n in range(pods)}
        self.clusters = {name: Cluster(name) for name in CLUSTERS}
        self.late: list[Callable[[], object]] = []
        self.hubs = [Hub(self) for _ in range(hubs)]
        self.succeeded: dict[str, tuple[str, int]] = {}
        self.log: list[str] = []

    # -- the hub's API ------------------------------------------------------------------------------------

    def gang(self) -> OriginGang | None:
        if not self.exists:
            return None
        pods = tuple(OriginPod(o.name, o.uid, o.ended, o.phase == FAILED) for o in self.origins.values())
        recall = "sooner elsewhere" if self.random.random() < self.spills else ""
        return OriginGang("gang", pods, len(pods), self.suspended, self.policy, 20, recall=recall)

    def write_status(self, version: str, status: DispatchStatus) -> None:
        if self.record is None or (self.record.version != version and self.without != "swap"):
            raise NoAnswerError
        self.log.append(f"record {status.phase} {status.epoch} {status.cluster} {status.reason}")
        self.record = msgspec.structs.replace(self.record, version=str(next(self.ids)), status=status)

    def write_origin(self, name: str, uid: str, version: int, phase: str) -> None:
        origin = self.origins.get(name)
        if origin is None or origin.uid != uid or origin.version != version:
            raise NoAnswerError
        origin.phase, origin.version = phase, next(self.ids)

    # -- a cluster's API ----------------------------------------------------------------------------------

    def drop_if_free(self, cluster: Cluster, one: Copy) -> None:
        if one.deleting and not one.held and one.phase != RUNNING:
            del cluster.copies[one.name]

    def find(self, cluster: Cluster, name: str, uid: str) -> Copy:
        one = cluster.copies.get(name)
        if one is None or one.uid != uid:
            raise NoAnswerError
        return one

    # -- spontaneous events --------------------------------------------------------------------------------

    def live(self) -> None:
        """One step of some cluster's scheduler or kubelets."""
        cluster = self.random.choice(list(self.clusters.values()))
        for one in list(cluster.copies.values()):
            chance = self.random.random()
            if one.phase == PENDING and not one.gated and not one.deleting and cluster.fresh and chance < 0.2:
                one.phase, one.version = RUNNING, next(self.ids)
                self.log.append(f"{cluster.name} starts {one.uid} of epoch {one.epoch}")
            elif one.phase == RUNNING and (one.deleting or chance < self.pace):
                one.phase = FAILED if one.deleting else SUCCEEDED
                if one.phase == SUCCEEDED and not one.restored:
                    self.succeeded[one.origin_uid] = (cluster.name, cluster.restores)
            elif one.phase == RUNNING and chance > 0.99:
                one.deleting = True  # evicted there
            self.drop_if_free(cluster, one)

    def disturb(self) -> None:
        cluster = self.random.choice(list(self.clusters.values()))
        match self.random.randrange(9):
            case 0:
                cluster.cut = not cluster.cut and self.random.random() < 0.4
            case 1 if any(not one.gated and one.phase == PENDING for one in cluster.copies.values()):
                cluster.backup = Backup(copy.deepcopy(cluster.copies), cluster.group, cluster.lease)
            case 2 if cluster.backup is not None and not cluster.copies:
                kept = copy.deepcopy(cluster.backup)
                cluster.copies, cluster.group, cluster.lease = kept.copies, kept.group, kept.lease
                for one in cluster.copies.values():
                    one.restored = one.phase == RUNNING or one.restored
                cluster.fresh, cluster.restores = self.without == "fence" and cluster.fresh, cluster.restores + 1
                self.log.append(f"{cluster.name} is restored")
            case 3:
                self.random.choice(self.hubs).restart()
            case 4 if self.suspended or self.random.random() < 0.5:
                self.suspended = not self.suspended
            case 5 if self.late:
                self.deliver_late()
            case 6 if self.random.random() < 0.1:
                self.exists = False
            case 7 if self.random.random() < 0.2:
                # The job's controller replaces a failed pod.
                failed = [each for each in self.origins.values() if each.phase == FAILED]
                if failed:
                    self.origins[failed[0].name] = Origin(failed[0].name, f"o-{next(self.ids)}")
            case 8:
                self.now += self.random.randrange(1, 30)

    def deliver_late(self) -> None:
        action = self.late.pop(self.random.randrange(len(self.late)))
        with contextlib.suppress(NoAnswerError):
            action()

    # -- invariants ---------------------------------------------------------------------------------------

    def running_in(self) -> dict[str, list[str]]:
        """Return the clusters that run pods which did not run in their backup already."""
        return {
            cluster.name: uids
            for cluster in self.clusters.values()
            if (uids := [c.uid for c in cluster.copies.values() if c.phase == RUNNING and not c.restored])
        }

    def settle(self, rounds: int = 4000) -> None:
        """End the disturbances: one hub works, everything is reachable, late writes arrive."""
        while self.late:
            self.deliver_late()
        for cluster in self.clusters.values():
            cluster.cut = False
        self.pace, self.spills = 0.5, 0.0
        hub = self.hubs[0]
        hub.restart()
        for _ in range(rounds):
            hub.look()
            hub.act(lossy=False)
            hub.tend(all_clusters=True)
            self.live()
            self.now += 1
            yield_check(self)


def yield_check(world: World) -> None:
    """Raises AssertionError where two clusters run the gang although its policy is Wait."""
    running = world.running_in()
    assert world.policy is not LostPolicy.WAIT or len(running) <= 1, (running, world.log[-40:])


class Hub:
    """One process, with caches that are as old as its last look at each."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.restart()

    def restart(self) -> None:
        self.record: Dispatch | None = None
        self.gang: OriginGang | None = None
        self.versions: dict[str, int] = {}
        self.phases: dict[str, str] = {}
        self.views: dict[str, ClusterView] = {}
        self.swept: set[str] = set()
        self.leases: dict[str, int] = {}
        self.silent: dict[str, int] = {}
        self.look()

    def look(self, part: int | None = None) -> None:
        """Brings all caches up to date, or one of them."""
        world = self.world
        if part in (None, 0):
            self.record = world.record
        if part in (None, 1):
            self.gang = world.gang()
            self.versions = {o.uid: o.version for o in world.origins.values()}
            self.phases = {o.uid: o.phase for o in world.origins.values()}
        for index, cluster in enumerate(world.clusters.values(), 2):
            if part in (None, index):
                self.views[cluster.name] = self._view(cluster)

    def _view(self, cluster: Cluster) -> ClusterView:
        if cluster.cut:
            self.swept.discard(cluster.name)
            since = self.silent.setdefault(cluster.name, self.world.now)
            return ClusterView(cluster.name, None, "", True, since)
        self.silent.pop(cluster.name, None)
        if cluster.name not in self.swept:
            return ClusterView(cluster.name, None, "", False, self.world.now)
        copies = {}
        for one in cluster.copies.values():
            over = one.ended or (one.deleting and one.phase == PENDING)
            news = self.phases.get(one.origin_uid, one.phase) != one.phase
            copies[one.uid] = CopyView(
                *(one.name, one.uid, one.origin_uid, one.epoch, one.gated, one.ended, over, one.deleting),
                *(one.held, news, one.phase == FAILED),
                bound=one.phase == RUNNING,
                version=str(one.version),
            )
        return ClusterView(cluster.name, copies, cluster.group)

    def act(self, lossy: bool) -> None:
        """Execute the protocol's steps, or one of them."""
        self.refresh_news()
        steps = list(protocol.next_steps(self.record, self.gang, self.views, self.world.now))
        if lossy and steps:
            steps = [self.world.random.choice(steps)]
        for step in steps:
            action = self._action(step)
            if action is None:
                continue
            chance = self.world.random.random() if lossy else 1.0
            if chance < 0.1:
                self.world.late.append(action)  # sent, and no answer
            elif chance < 0.15:
                pass  # never arrived
            else:
                with contextlib.suppress(NoAnswerError):
                    action()

    def refresh_news(self) -> None:
        for name, view in self.views.items():
            if view.copies is None:
                continue
            phases = {one.uid: one.phase for one in self.world.clusters[name].copies.values()}
            fresh = {
                uid: msgspec.structs.replace(
                    one, news=uid in phases and self.phases.get(one.origin_uid, phases[uid]) != phases[uid]
                )
                for uid, one in view.copies.items()
            }
            self.views[name] = msgspec.structs.replace(view, copies=fresh)

    def _action(self, step: Step) -> Callable[[], object] | None:
        world, record = self.world, self.record
        if isinstance(step, protocol.CreateRecord):
            return self._create_record
        assert record is not None
        version, status = record.version, record.status
        if isinstance(step, protocol.WriteStatus):
            wanted = step.status
            return lambda: world.write_status(version, wanted)
        if isinstance(step, protocol.RemoveRecord):
            return lambda: self._remove_record(version)
        if isinstance(step, protocol.Choose):
            able = sorted(name for name, view in self.views.items() if view.copies is not None)
            if not able:
                return None
            found = protocol.chosen(status, world.random.choice(able), world.now)
            return lambda: world.write_status(version, found)
        cluster = world.clusters[status.cluster]
        if isinstance(step, protocol.ConfirmGone):
            if cluster.cut or cluster.copies:
                return None
            found = protocol.withdrawn(status, world.now)
            return lambda: world.write_status(version, found)
        if record.phase is Phase.WITHDRAWING and world.without == "list":
            found = protocol.withdrawn(status, world.now)
            return lambda: world.write_status(version, found)
        if isinstance(step, protocol.FailLost):
            return self._origin_write(step.name, step.origin_uid, FAILED)
        if isinstance(step, protocol.MirrorStatus):
            one = next((one for one in cluster.copies.values() if one.uid == step.uid), None)
            return self._origin_write(step.name, step.origin_uid, one.phase) if one is not None else None
        return lambda: self._send(cluster, step, status.epoch)

    def _origin_write(self, name: str, uid: str, phase: str) -> Callable[[], object]:
        version = self.versions.get(uid, -1)
        return lambda: self.world.write_origin(name, uid, version, phase)

    def _send(self, cluster: Cluster, step: Step, epoch: int) -> None:
        world = self.world
        if cluster.cut:
            raise NoAnswerError
        match step:
            case protocol.CreateGroup():
                cluster.group = cluster.group or f"g-{next(world.ids)}"
            case protocol.DeleteGroup(uid):
                cluster.group = "" if cluster.group == uid else cluster.group
            case protocol.CreateCopy(name, origin_uid):
                if name not in cluster.copies:
                    cluster.copies[name] = Copy(name, f"c-{next(world.ids)}", origin_uid, epoch)
            case protocol.LiftGate(name, uid):
                one = world.find(cluster, name, uid)
                one.gated, one.version = False, next(world.ids)
            case protocol.DeleteCopy(name, uid):
                one = world.find(cluster, name, uid)
                one.deleting = True
                world.drop_if_free(cluster, one)
            case protocol.RecallCopy(name, uid, seen):
                one = world.find(cluster, name, uid)
                if seen != str(one.version) and world.without != "version":
                    raise NoAnswerError
                if one.phase != PENDING:
                    world.recalled_running += 1
                one.deleting, one.version = True, next(world.ids)
                world.drop_if_free(cluster, one)
            case protocol.ReleaseCopy(name, uid):
                one = world.find(cluster, name, uid)
                one.held = False
                world.drop_if_free(cluster, one)
            case _:
                raise AssertionError(step)

    def _create_record(self) -> None:
        world = self.world
        if world.record is None and world.exists:
            reference = GangReference("v1", "gang", "gang")
            world.record = Dispatch(
                "ns", "gang", f"d-{next(world.ids)}", str(next(world.ids)), reference, DispatchStatus()
            )

    def _remove_record(self, version: str) -> None:
        if self.world.record is not None and self.world.record.version == version:
            self.world.record = None

    def tend(self, all_clusters: bool = False) -> None:
        """Sweeps a cluster, and renews its lease where nothing stale is left."""
        names = CLUSTERS if all_clusters else [self.world.random.choice(CLUSTERS)]
        for name in names:
            self._tend(self.world.clusters[name])

    def _tend(self, cluster: Cluster) -> None:
        if cluster.cut:
            return
        world = self.world
        if self.leases.get(cluster.name) != cluster.lease:
            self.swept.discard(cluster.name)
        if cluster.name in self.swept:
            cluster.lease = self.leases[cluster.name] = next(world.ids)
            cluster.fresh = True
            return
        lease = cluster.lease  # read before the list: a restore in between is found out by the next write
        seen = [self._copy_view(one) for one in cluster.copies.values()]
        record = world.record  # read after the list
        left = [one for one in seen if protocol.stale(one, cluster.name, record)]
        for one in left:
            for step in protocol.clear(one):
                with contextlib.suppress(NoAnswerError):
                    self._send(cluster, step, 0)
        if not left and cluster.lease == lease:
            self.swept.add(cluster.name)
            cluster.lease = self.leases[cluster.name] = next(world.ids)
            cluster.fresh = True

    def _copy_view(self, one: Copy) -> CopyView:
        over = one.ended or (one.deleting and one.phase == PENDING)
        return CopyView(
            one.name, one.uid, one.origin_uid, one.epoch, one.gated, one.ended, over, one.deleting, one.held
        )
