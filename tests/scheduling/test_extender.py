"""`extender`: an external process that filters and scores nodes and decides on queues and groups."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

import pytest

from phalanx.scheduling.framework.errors import PolicyError
from phalanx.scheduling.plugins.nodes.extender import Extender
from phalanx.scheduling.plugins.nodes.extender_calls import CallError, Document
from phalanx.scheduling.policy.loader import load_policy

from .scenario import Scenario

VERBS = {
    "predicateVerb": "predicate",
    "prioritizeVerb": "prioritize",
    "queueOverusedVerb": "overused",
    "jobEnqueueableVerb": "enqueueable",
    "jobEnqueuedVerb": "enqueued",
}
Answer = Callable[[Any], Document]


def policy(*verbs: str, more: str = "") -> str:
    listed = "".join(f", extender.{verb}: {VERBS[verb]}" for verb in verbs)
    return f"""
actions: "enqueue, allocate, backfill"
tiers: [{{plugins: [{{name: priority}}, {{name: gang}}, {{name: predicates}}, {{name: extender,
  arguments: {{extender.urlPrefix: "http://localhost"{listed}{more}}}}}]}}]
"""


class Extended(Scenario):
    """Extender with `answers` by verb; `asked` lists the requests in order."""

    def __init__(self, *verbs: str, more: str = "", **answers: Answer) -> None:
        super().__init__(policy(*verbs, more=more))
        self.answers = answers
        self.asked: list[tuple[str, Any]] = []
        extender = self.policy.configured(Extender)
        assert extender is not None
        extender.connect(self._call)

    def _call(self, verb: str, document: Document) -> Document:
        self.asked.append((verb, document))
        if verb not in self.answers:
            raise CallError("connection refused")
        return self.answers[verb](document)

    def count(self, verb: str) -> int:
        return sum(1 for asked, _ in self.asked if asked == verb)

    def later(self) -> Self:
        self.now += 10
        self.cycle()
        return self


def refusing(*names: str) -> Answer:
    return lambda document: {"status": "too warm" if document["node"]["Name"] in names else ""}


def test_nodes_are_scored_once_for_all_pods_of_a_class() -> None:
    s = Extended("prioritizeVerb", prioritize=lambda _: {"nodeScore": {"n2": 5, "n3": 7.5, "gone": 9}}).nodes(
        3, cpu=2
    )
    s.job("g", 5, cpu=1).run()
    assert s.spread() == {"n3": 2, "n2": 2, "n1": 1}
    assert s.count("prioritize") == 1
    ((_, document),) = s.asked
    assert [node["Name"] for node in document["nodes"]] == ["n1", "n2", "n3"]
    assert document["task"]["Resreq"]["MilliCPU"] == 1000.0
    assert document["nodes"][0]["Idle"]["MilliCPU"] == 2000.0


def test_only_nodes_that_passed_the_filters_are_sent_to_the_extender() -> None:
    s = Extended("predicateVerb", predicate=refusing("n1", "n2")).nodes(50, cpu=8)
    s.job("g", 8, cpu=1).run()
    assert s.spread() == {"n3": 8}
    assert [document["node"]["Name"] for _, document in s.asked] == ["n1", "n2", "n3"]


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        ({"status": "too warm", "code": 1}, "too warm"),
        ({"errorMessage": "not today"}, "not today"),
        ({"code": 3}, "code 3"),
    ],
)
def test_refusals_of_newer_and_older_extenders_are_read(answer: Document, told: str) -> None:
    s = Extended("predicateVerb", predicate=lambda _: answer).nodes(1)
    s.pod("p", cpu=1).run()
    assert f"1 node(s) refused by the extender: {told}" in s.why_pod("p").message


def test_refusal_of_an_extender_is_reported_and_expires() -> None:
    s = Extended("predicateVerb", predicate=refusing("n1")).nodes(1)
    s.pod("p", cpu=1).run()
    assert "1 node(s) refused by the extender: too warm" in s.why_pod("p").message
    assert s.count("predicate") == 1
    s.answers["predicate"] = refusing()
    s.later().run()
    assert s.where("p") == "n1"


def test_extender_is_called_only_for_pods_with_its_managed_resources() -> None:
    more = ", extender.managedResources: [nvidia.com/gpu]"
    s = Extended("predicateVerb", more=more, predicate=refusing("n1")).node("n1", gpu=1)
    s.pod("p", cpu=1).pod("q", cpu=1, gpu=1).run()
    assert (s.where("p"), s.where("q")) == ("n1", "")


@pytest.mark.parametrize("ignorable", [True, False])
def test_failing_extender_is_called_once_in_ten_seconds(ignorable: bool) -> None:
    s = Extended("predicateVerb", more=f", extender.ignorable: {str(ignorable).lower()}").nodes(20)
    s.job("g", 30, cpu=1).run()
    assert s.count("predicate") == 1
    assert len(s.placed()) == (30 if ignorable else 0)
    if not ignorable:
        assert "node(s) could not be checked by the extender" in s.why("g").message
        s.answers["predicate"] = refusing()
        s.later().run()
        assert len(s.placed()) == 30


def test_scores_of_a_failing_extender_are_ignored() -> None:
    s = Extended("prioritizeVerb").nodes(2)
    s.pod("p", cpu=1).run()
    assert s.placed() == ["p"]
    odd = Extended("prioritizeVerb", prioritize=lambda _: {"nodeScore": {"n1": "best", "n2": float("nan")}}).nodes(
        2
    )
    odd.pod("p", cpu=1).run()
    assert odd.placed() == ["p"]


def test_queue_that_the_extender_calls_overused_starts_no_pod() -> None:
    s = Extended("queueOverusedVerb", overused=lambda document: {"overused": document["queue"]["Name"] == "full"})
    s.nodes(1).queue("full").queue("free")
    s.pod("p", queue="full", cpu=1).pod("q", queue="free", cpu=1).run()
    assert s.placed() == ["q"]
    assert "the extender reports the queue as overused" in s.why_pod("p").message
    s.answers["overused"] = lambda _: {"overused": False}
    s.later().run()
    assert s.placed() == ["p", "q"]


def test_extender_decides_on_admission_of_groups_and_is_notified() -> None:
    s = Extended(
        "jobEnqueueableVerb",
        "jobEnqueuedVerb",
        enqueueable=lambda document: {"status": -1 if document["job"]["Name"] == "no" else 1},
        enqueued=lambda _: {},
    ).nodes(1)
    for name in ("yes", "no"):
        s.gang(name, 1, admission=True, admitted=False)
    s.work()
    assert s.admissions == ["yes"]
    assert [document["job"]["Name"] for verb, document in s.asked if verb == "enqueued"] == ["yes"]


def test_cached_answers_expire_together_and_only_where_there_are_any() -> None:
    s = Extended("predicateVerb", predicate=refusing()).nodes(1)
    extender = s.policy.configured(Extender)
    assert extender is not None
    assert extender.time_key(1000.0) == extender.time_key(1015.0) == 0
    s.pod("p", cpu=1).run()
    assert extender.time_key(s.now) == 0
    assert extender.time_key(s.now + 10) == 1
    assert extender.time_key(s.now + 30) == 1


def test_verbs_that_are_not_configured_are_not_called() -> None:
    s = Extended().nodes(1)
    s.pod("p", cpu=1).run()
    assert s.asked == []


def test_policy_without_a_connected_extender_still_places_pods() -> None:
    s = Scenario(policy("predicateVerb", "prioritizeVerb", "queueOverusedVerb")).nodes(1)
    s.pod("p", cpu=1).run()
    assert s.placed() == ["p"]


def test_arguments_are_checked() -> None:
    for wrong in (
        "extender.httpTimeout: soon",
        "extender.httpTimeout: 0s",
        "extender.managedResources: nvidia.com/gpu",
    ):
        with pytest.raises(PolicyError, match=wrong.split(":")[0]):
            load_policy(policy(more=f", extender.{wrong}"))
    found = load_policy(policy(more=", extender.jobReadyVerb: ready, extender.httpTimeout: 100ms"))
    assert any("extender.jobReadyVerb is accepted but has no effect" in remark for remark in found.inactive)
    extender = found.configured(Extender)
    assert extender is not None
    assert extender.timeout == 0.1
