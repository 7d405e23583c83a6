"""The story of a pair: the job waits for both features, starts, and is evicted by each; the process is killed in
between."""

from __future__ import annotations

import msgspec

from .feature import NO_ROOM, Feature
from .job import Form, Job
from .world import World


class Seen(msgspec.Struct):
    """What a story has shown."""

    waits: list[str] = []
    starts: list[int] = []
    evictions: list[str] = []
    restarts: int = 0


class Story:
    """Two features in one cluster. The first obstructs rack x, the second rack y."""

    def __init__(self, first: Feature, second: Feature) -> None:
        self.first, self.second = first, second
        self.world = World(reserves=first.reserves_starts or second.reserves_starts)
        for queue in ("lab", "other"):
            self.world.queue(queue)
        form = Form()
        for feature in (first, second):
            feature.prepare(self.world)
            feature.shape(form)
        self.job = Job(self.world, form)
        self.seen = Seen()

    def play(self) -> Seen:
        world = self.world
        self.first.obstruct(world, "x", self.job.form)
        self.second.obstruct(world, "y", self.job.form)
        world.settle().kill_at_rest()
        self.job.submit()
        self.wait()
        self.second.clear(world, "y")
        self.start()
        self.eviction(self.first)
        self.first.clear(world, "x")
        self.start()
        self.eviction(self.second)
        self.first.release(world)
        self.second.release(world)
        self.start()
        self.seen.restarts = world.restarts
        return self.seen

    def wait(self) -> None:
        """Check that the job waits as a whole for one of the features, before and after a restart."""
        self.world.settle()
        self.check()
        assert self.job.waits, f"{self.job.placed} started although both racks are closed"
        self._note_reasons()
        self.world.kill_at_rest()
        self.check()
        assert self.job.waits

    def start(self) -> None:
        """Check that the job starts, in spite of a process that ends when half of its bindings are written."""
        world = self.world
        world.kill_before_writes()
        world.work()
        world.arrive(1)
        world.kill().finish()
        self.check()
        assert self.job.runs, f"the job does not start: {self.job.reasons}"
        self.seen.starts.append(len(self.job.placed))
        world.settle().kill_at_rest()
        self.check()
        for feature in (self.first, self.second):
            feature.started(world, self.job)
            world.finish().kill_at_rest()
        self.check()
        assert self.job.runs

    def eviction(self, feature: Feature) -> None:
        """Check that the feature evicts the job as a whole, in spite of a process that ends before its victims."""
        world, members = self.world, self.job.placed
        feature.evict(world, self.job)
        world.kill_before_writes()
        world.settle()
        evicted = [uid for uid in members if uid in world.reasons_of_evictions]
        assert evicted == members, f"evicted {evicted} of {members}"
        reasons = {world.reasons_of_evictions[uid] for uid in members}
        assert reasons == {feature.evicts}, reasons
        self.seen.evictions.append(f"{feature.evicts} {len(members)}")
        world.kill_at_rest()
        world.finish()
        self.check()
        if self.job.waits:
            self._note_reasons()
            world.kill_at_rest()

    def check(self) -> None:
        """Check that the job runs whole or not at all, and each feature's own invariants."""
        assert self.job.waits or self.job.runs, f"the job runs in part: {self.job.placed}"
        for feature in (self.first, self.second):
            feature.check(self.world, self.job)

    def _note_reasons(self) -> None:
        told, allowed = self.job.reasons, self.first.reasons | self.second.reasons
        if self.seen.starts:
            allowed |= NO_ROOM
        assert told, "the job waits without a reason"
        assert told <= allowed, f"the job waits for {told}, not for {sorted(allowed)}"
        self.seen.waits.append("+".join(sorted(told)))
