"""Features that give the job its form."""

from __future__ import annotations

from phalanx.model.decisions import EvictionReason
from phalanx.model.devices.cards import CardShare, DeviceNeed, Family
from phalanx.model.pod import PodClass

from .feature import NO_ROOM, URGENT, Feature
from .job import LIMIT, QUEUE, Form, Job
from .world import CARD_MEMORY, CARDS, COUNT, MEMORY, RACKS, SLOTS, World


class ElasticSurplus(Feature):
    """A member above the minimum, which is evicted alone where that is enough."""

    name = "elastic surplus"

    def shape(self, form: Form) -> None:
        form.surplus = 1

    def evict(self, world: World, job: Job) -> None:
        """Evict one surplus member for a pod that needs no more, then the whole job."""
        before = job.placed
        for rack in sorted(job.racks):
            for node in RACKS[rack]:
                if cpu := SLOTS - world.cpus_of(node):
                    world.pod(f"close-{node}-{world.now}", node=node, cpu=cpu, priority=URGENT, queue=QUEUE)
        # A composite is a unit of disruption: no member of it is evicted alone.
        if len(before) > job.required and len(job.form.gangs) == 1:
            rack = min(job.racks)
            only = PodClass(node_selector=(("topology.kubernetes.io/rack", rack),))
            world.pod(f"close-surplus-{world.now}", cpu=1, priority=URGENT, queue=QUEUE, pod_class=only)
            world.settle()
            evicted = [uid for uid in before if uid not in job.placed]
            assert len(evicted) == 1, f"{evicted} of {before} are evicted for a pod of one CPU"
            assert job.runs
            world.kill_at_rest()
            world.finish()
        self.remove(world, "close")
        world.finish()
        super().evict(world, job)


class RunTimeLimit(Feature):
    """The queue limits the run time of the job, and the scheduler evicts it at the limit."""

    name = "run-time limit"
    evicts = EvictionReason.REVOKED

    def shape(self, form: Form) -> None:
        form.limit = LIMIT

    def evict(self, world: World, job: Job) -> None:
        world.now += LIMIT
        world.scheduler.activate_due(world.now)

    def check(self, world: World, job: Job) -> None:
        for uid in job.placed:
            assert world.now < (world.state.pods[uid].pod.started or world.now) + LIMIT, f"{uid} exceeds its limit"


class ExpectedMembers(Feature):
    """The job's leader creates a member once it runs: room is held for it."""

    name = "expected members"

    def shape(self, form: Form) -> None:
        form.expected = 1

    def obstruct(self, world: World, rack: str, form: Form) -> None:
        """Leave room for the required members, but not for the expected one too."""
        self.fill(world, rack, SLOTS - 2, SLOTS)

    def started(self, world: World, job: Job) -> None:
        assert job.holds_room, "the room for the expected member is lost"
        before = len(job.placed)
        job.create_expected()
        world.work()
        assert len(job.placed) == before + len(job.form.gangs), "the expected members do not start"

    def check(self, world: World, job: Job) -> None:
        assert job.waits or job.holds_room, "the room for the expected member is lost"


class Admission(Feature):
    """The group is admitted by its minResources before its members are placed."""

    name = "admission by minResources"
    reasons = NO_ROOM | {"AwaitingAdmission"}

    def shape(self, form: Form) -> None:
        form.admission = True

    def check(self, world: World, job: Job) -> None:
        assert job.waits or job.admitted, "the job is placed before it is admitted"


class SuspendedJobs(Admission):
    """The job has no pods until its group is admitted, and is suspended again when it is evicted."""

    name = "suspended jobs"

    def shape(self, form: Form) -> None:
        form.suspended = True

    def check(self, world: World, job: Job) -> None:
        super().check(world, job)
        assert job.admitted or not job.pods, "a suspended job has pods"


class Devices(Feature):
    """Each member uses a card of its own."""

    name = "devices"

    def shape(self, form: Form) -> None:
        form.cards = True

    def obstruct(self, world: World, rack: str, form: Form) -> None:
        """Use all cards; CPUs too where an expected member, which uses no card, would fit."""
        need = DeviceNeed(Family.VGPU, (CardShare(count=CARDS, memory=CARD_MEMORY),))
        for node in RACKS[rack]:
            amounts = {MEMORY: CARD_MEMORY * CARDS, COUNT: CARDS} | ({"cpu": SLOTS} if form.expected else {})
            more = {"cards": tuple(f"{node}-{at}" for at in range(CARDS))}
            self.fill_node(world, node, pod_class=PodClass(devices=need), more=more, **amounts)

    def check(self, world: World, job: Job) -> None:
        cards = [card for uid in job.placed for card in world.state.pods[uid].pod.cards]
        assert len(cards) == len(set(cards)), "two members share a card"
        assert len(cards) == len([uid for uid in job.placed if world.state.pods[uid].pod.node])


class Topology(Feature):
    """All members of a gang are in one rack."""

    name = "topology"

    def shape(self, form: Form) -> None:
        form.in_a_rack = True

    def obstruct(self, world: World, rack: str, form: Form) -> None:
        """Leave one slot: no gang fits into the rack."""
        self.fill(world, rack, SLOTS, SLOTS - 1)

    def check(self, world: World, job: Job) -> None:
        for gang in job.form.gangs:
            racks = {world.where(uid)[0] for uid in job.placed if world.state.pods[uid].pod.gang == gang}
            assert len(racks) <= 1, f"gang {gang} is in {racks}"


class Composites(Feature):
    """The job is two gangs of a CompositePodGroup, which start together or not at all."""

    name = "composites"
    reasons = NO_ROOM | {"WaitingForComposite"}

    def shape(self, form: Form) -> None:
        form.gangs = ("job-a", "job-b")

    def obstruct(self, world: World, rack: str, form: Form) -> None:
        """Leave room for one gang of the two."""
        self.fill(world, rack, SLOTS - 1, SLOTS - 1)
