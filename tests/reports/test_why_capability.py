"""A gang that asks for more than its queue may ever have: one story, and a change that helps."""

from __future__ import annotations

import pytest

from phalanx.model.account import Account, AccountKey, Tree
from phalanx.model.events import AccountUpdated, GangUpdated, PodUpdated
from phalanx.model.gang import Gang, GangKey
from phalanx.model.pod import Pod, PodClass, PodPhase
from phalanx.model.resources import requests_of
from phalanx.reports.why import WhyReport
from phalanx.reports.why_answer import WhyAnswer
from phalanx.scheduling.policy.loader import load_policy
from phalanx.views.promises import PromisedStart

from .test_why import KEY, ONE, Cluster

POLICY = """
actions: "enqueue, allocate, {extra}backfill"
tiers: [{{plugins: [{{name: priority}}, {{name: gang}}]}}, {{plugins: [{{name: predicates}}, {{name: {queues}}}]}}]
"""


class QueuedCluster(Cluster):
    """A queue `q` with a capability in cores, in which `running` pods of one core run and the gang waits.

    Its last member requests `largest` cores and each other one requests one.
    """

    def __init__(
        self, capability: int, members: int, *, cpus: int = 20, running: int = 0, largest: int = 1
    ) -> None:
        super().__init__(cpus, members)
        self._gang(Gang(KEY, min_member=members, queue="q"))
        self.set_capability(capability)
        if running:
            self._gang(Gang(GangKey("ns", "r"), min_member=running, queue="q"))
        for number in range(running):
            self._pod(f"r-{number}", "r", ONE, PodPhase.RUNNING)
        self.pods(0, members - 1)
        self._pod("g-last", "g", PodClass(requests=requests_of({"cpu": largest * 1000})), PodPhase.PENDING)

    def set_capability(self, cores: int) -> None:
        account = Account(AccountKey(Tree.QUEUE, "q"), capability=(("cpu", cores * 1000),), label="queue q")
        self.snapshot.state.apply(AccountUpdated(account))

    def _gang(self, gang: Gang) -> None:
        self.snapshot.state.apply(GangUpdated(gang))

    def _pod(self, name: str, gang: str, pods: PodClass, phase: PodPhase) -> None:
        node = "n" if phase is PodPhase.RUNNING else ""
        pod = Pod("ns", name, f"u-{name}", pods, pods.requests, "phalanx", node, phase, gang=gang, queue="q")
        self.snapshot.state.apply(PodUpdated(pod))

    def report(self, queues: str = "capacity", extra: str = "") -> WhyReport:
        return WhyReport(self.snapshot, load_policy(POLICY.format(queues=queues, extra=extra)), 1e9)


def answer_of(report: WhyReport) -> WhyAnswer:
    answer = report.gang(KEY)
    assert answer is not None
    return answer


def start_of(report: WhyReport) -> PromisedStart:
    start = report.start(KEY)
    assert start is not None
    return start


@pytest.mark.feature("start-reservations")
@pytest.mark.parametrize("queues", ["capacity", "proportion"])
@pytest.mark.parametrize("running", [0, 2])
def test_gang_that_can_never_start_names_no_blocking_pods(queues: str, running: int) -> None:
    report = QueuedCluster(4, 8, running=running).report(queues, "reserve, ")
    answer, start = answer_of(report), start_of(report)
    assert (answer.reason, start.reason) == ("QuotaExceeded", "CannotEverRun")
    assert start.message == "cannot ever run: capability of queue q (cpu) never allows so much"
    assert f"it {start.message}" in answer.message
    assert "no start is known" not in answer.message


@pytest.mark.feature("start-reservations")
def test_gang_that_starts_after_running_pods_end_has_an_unknown_start() -> None:
    report = QueuedCluster(4, 4, running=2).report(extra="reserve, ")
    answer, start = answer_of(report), start_of(report)
    assert start.reason == "NoEndKnown"
    assert "no start is known: a pod in its way has no known end" in answer.message
    assert "free 2 cpu charged to queue q" in answer.change


@pytest.mark.parametrize(("running", "largest"), [(0, 1), (2, 1), (0, 4), (2, 4), (1, 7)])
def test_the_capability_that_is_named_is_the_least_that_helps(running: int, largest: int) -> None:
    """Members skipped behind another kind are counted under their real reason."""
    needed = 4 + largest + running
    answer = answer_of(QueuedCluster(4, 5, running=running, largest=largest).report())
    assert answer.change == f"raise its capability to {needed}"
    assert f"{running} cpu in use, capability 4; {4 + largest} more would exceed it" in answer.message
    for capability, forecast in ((needed - 1, ""), (needed, "StartsNow")):
        again = answer_of(QueuedCluster(capability, 5, running=running, largest=largest).report())
        assert again.forecast == forecast


def test_suggested_capability_never_exceeds_the_cluster() -> None:
    answer = answer_of(QueuedCluster(4, 8, cpus=5).report())
    assert answer.change == "request at most 4 cpu"
