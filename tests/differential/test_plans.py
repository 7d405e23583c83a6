"""kube-scheduler would allow each planned step, and no pod waits that fits a node."""

from __future__ import annotations

import copy

import pytest

from phalanx.model.decisions import Bind
from tests.differential.oracle.verdict import objections
from tests.differential.oracle.world import Wire, World
from tests.differential.ours import Ours
from tests.differential.preparing import RefusedError, carry_out
from tests.differential.stories import Story
from tests.differential.test_stories import tell
from tests.differential.worlds import OURS

TOPICS = (
    frozenset({"PodTopologySpread"}),
    frozenset({"InterPodAffinity"}),
    frozenset({"NodePorts", "NodeResourcesFit"}),
    frozenset({"PodTopologySpread", "InterPodAffinity", "TaintToleration", "NodeAffinity", "NodeUnschedulable"}),
    frozenset({"Volumes"}),
    frozenset({"DynamicResources"}),
)
SEEDS = 6
GANG, MINIMUM = "pod-group.scheduling.sigs.k8s.io/name", "pod-group.scheduling.sigs.k8s.io/min-available"


class Play:
    """A story in which we bind pods."""

    def __init__(self, seed: int, topics: frozenset[str], gangs: bool) -> None:
        self.story = Story(seed, topics, bound=0.25)
        self.gangs = gangs
        self.now = 1_800_000_000.0
        self._group()
        self.ours = Ours.of(self.story.world)
        self.bound = 0

    @property
    def world(self) -> World:
        return self.story.world

    def run(self, steps: int) -> None:
        self.settle()
        for _ in range(steps):
            told = self.story.step()
            tell(self.ours, told)
            self.settle()

    def settle(self) -> None:
        """Plans until nothing more is planned; each binding must be allowed where it comes in the plan."""
        for _ in range(20):
            self.now += 60
            plan = self.ours.scheduler.cycle(self.now)
            for bind in plan.binds:
                self._bind(bind)
            if self.ours.scheduler.idle:
                break
        assert self.ours.scheduler.idle
        self._check_that_nobody_waits_in_vain()

    def _bind(self, bind: Bind) -> None:
        pod, node = self._pod(bind.uid), self.world.node(bind.node)
        assert node is not None
        against = objections(self.world, pod, node)
        assert not against, f"{bind.uid} was bound to {bind.node} although {against}"
        for preparation in bind.preparations:
            try:
                changed = carry_out(self.world, preparation)
            except RefusedError:
                self.ours.state.pods.binding_failed(bind.uid)
                return
            for kind, entry in changed:
                self.ours.take(kind, copy.deepcopy(entry))
        pod["spec"]["nodeName"] = bind.node
        self.bound += 1
        self.ours.take("pods", copy.deepcopy(pod))

    def _check_that_nobody_waits_in_vain(self) -> None:
        for pod in self.world.waiting():
            if pod["spec"].get("schedulerName") != OURS or GANG in pod["metadata"]["labels"]:
                continue
            for node in self.world.nodes:
                against = objections(self.world, pod, node)
                assert against, f"{pod['metadata']['uid']} waits although {node['metadata']['name']} would do"

    def _pod(self, uid: str) -> Wire:
        return next(pod for pod in self.world.pods if pod["metadata"]["uid"] == uid)

    def _group(self) -> None:
        """Make gangs of some of the waiting pods."""
        if self.gangs:
            for at, pod in enumerate(self.world.waiting()):
                if at % 3:
                    pod["metadata"]["labels"] |= {GANG: "gang", MINIMUM: "2"}


@pytest.mark.slow_but_first
@pytest.mark.parametrize("gangs", [False, True], ids=["pods", "gangs"])
@pytest.mark.parametrize("topics", TOPICS, ids=lambda topics: "+".join(sorted(topics)))
def test_plans_are_allowed_by_kube_scheduler_and_place_every_pod_that_fits(
    topics: frozenset[str], gangs: bool
) -> None:
    bound = 0
    for seed in range(SEEDS):
        play = Play(seed, topics, gangs)
        play.run(4)
        bound += play.bound
    assert bound > SEEDS // 2, "the worlds are too narrow to say anything"


@pytest.mark.slow
@pytest.mark.parametrize("block", range(5))
def test_hundreds(block: int) -> None:
    for seed in range(1000 + 24 * block, 1000 + 24 * (block + 1)):
        Play(seed, TOPICS[seed % len(TOPICS)], gangs=bool(seed // len(TOPICS) % 2)).run(15)
