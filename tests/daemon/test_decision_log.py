"""One id ties a decision together: the wake-up of the cycle, the plan, each write, and the pod's history."""

from __future__ import annotations

import json
import logging
import sys
from typing import Any

import pytest

from phalanx.cli.services.logs import JsonFormatter, TextFormatter
from phalanx.cluster.state import ClusterState
from phalanx.daemon.decision_log import DecisionLog
from phalanx.daemon.metrics.debugging import pod_story
from phalanx.dialects.warnings import ObjectRef
from phalanx.execution.binder import BindOutcome, BindResult
from phalanx.execution.evictor import EvictionOutcome, EvictResult
from phalanx.model.decisions import Evict, EvictionReason, Plan
from tests.scheduling.scenario import Scenario

POD = ObjectRef("v1", "Pod", "ns", "a", "uid-a")
NODE = ObjectRef("v1", "Node", "", "n1", "uid-n1")


def told(caplog: pytest.LogCaptureFixture, message: str) -> list[dict[str, Any]]:
    return [record.__dict__["fields"] for record in caplog.records if record.getMessage() == message]


def test_a_decision_is_followed_from_the_event_over_the_plan_to_the_write(caplog: pytest.LogCaptureFixture) -> None:
    world, decisions = (
        Scenario().node("n1", cpu=4).job("train", 2, cpu=1).job("large", 9, cpu=1).pod("big", cpu=9),
        DecisionLog(),
    )
    decisions.arrivals.note(NODE)
    decisions.arrivals.note(POD)
    with caplog.at_level(logging.DEBUG, "phalanx.daemon.decision_log"):
        plan = world.cycle()
        decisions.cycle(plan, world.state, world.now)
        for bind in plan.binds:
            decisions.bound(BindResult(bind, BindOutcome.BOUND))
    assert plan.pods[0].verdict is not None
    [woken] = told(caplog, "woken")
    assert (woken["event"], woken["events"]) == ("Node n1", 2)
    cause = woken["cause"]
    assert told(caplog, "decided") == [
        {"cause": cause, "verdict": "bind", "unit": "gang ns/train", "pods": 2, "nodes": 1},
        {"cause": cause, "verdict": "wait", "unit": "gang ns/large", "reason": world.why("large").code},
        {"cause": cause, "verdict": "wait", "unit": "pod ns/big", "reason": plan.pods[0].verdict.code},
    ]
    bound = told(caplog, "bound")
    assert [(line["cause"], line["unit"], line["node"]) for line in bound] == [(cause, "gang ns/train", "n1")] * 2
    story = pod_story(world.state, decisions, "ns", "train-0")
    assert story is not None
    assert [step["cause"] for step in story["steps"] if step["event"] == "ASSUME"] == [cause]
    assert story["causes"][cause]["event"] == "Node n1"


def test_history_of_a_waiting_pod_names_the_cycle_of_its_last_reason() -> None:
    world = Scenario().node("n1", cpu=4).job("large", 2, cpu=4).pod("big", cpu=9)
    decisions = DecisionLog()
    plan = world.cycle()
    decisions.cycle(plan, world.state, world.now)
    for name, verdict in (("large-0", world.why("large")), ("big", plan.pods[0].verdict)):
        story = pod_story(world.state, decisions, "ns", name)
        assert story is not None
        assert verdict is not None
        [now] = story["now"]
        cause = f"c{plan.cycle}"
        assert now["state"] == "PENDING"
        assert now["verdict"] == {"reason": verdict.code, "message": verdict.message, "cause": cause}
        assert list(story["causes"]) == [cause]
    assert pod_story(world.state, decisions, "ns", "nobody") is None


def test_an_eviction_has_the_id_of_its_decision_in_the_log_and_in_the_story(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world, decisions = Scenario().node("n1", cpu=2).job("low", 2, cpu=1).settle(), DecisionLog()
    world.job("high", 2, cpu=1, priority=10)
    with caplog.at_level(logging.INFO, "phalanx.daemon.decision_log"):
        plan = world.cycle()
        decisions.cycle(plan, world.state, world.now)
        for evict in plan.evictions:
            decisions.evicted(EvictResult(evict, EvictionOutcome.EVICTED))
    [decided] = told(caplog, "decided")
    cause = decided["cause"]
    assert cause.startswith(f"c{plan.cycle}.")
    assert (decided["verdict"], decided["pods"], decided["for"]) == ("evict", 2, "gang ns/high")
    assert [line["cause"] for line in told(caplog, "evicted")] == [cause, cause]
    story = pod_story(world.state, decisions, "ns", "low-0")
    assert story is not None
    assert [step["cause"] for step in story["steps"] if step["event"] == "EVICT"] == [cause]
    assert set(story["causes"]) >= {cause}


def test_at_the_default_level_bindings_say_nothing(caplog: pytest.LogCaptureFixture) -> None:
    world, decisions = Scenario().node("n1", cpu=4).job("train", 2, cpu=1), DecisionLog()
    with caplog.at_level(logging.INFO, "phalanx.daemon.decision_log"):
        plan = world.cycle()
        decisions.cycle(plan, world.state, world.now)
        for bind in plan.binds:
            decisions.bound(BindResult(bind, BindOutcome.BOUND))
    assert not caplog.records


def test_each_cycle_lists_the_changes_since_the_last_one_and_old_cycles_are_forgotten() -> None:
    decisions, state = DecisionLog(), ClusterState()
    decisions.arrivals.note(POD)
    decisions.cycle(Plan(1), state, 1000)
    decisions.cycle(Plan(2), state, 1001)
    assert decisions.wakes(["c1", "c2", "c9"]) == {
        "c1": {"time": "1970-01-01T00:16:40Z", "event": "Pod ns/a", "events": 1},
        "c2": {"time": "1970-01-01T00:16:41Z", "event": "", "events": 0},
    }
    for number in range(3, 6000):
        decisions.cycle(Plan(number), state, 1002)
    assert decisions.wakes(["c1"]) == {}


class TestFormats:
    def record(self, **fields: object) -> logging.LogRecord:
        record = logging.LogRecord("phalanx.x", logging.INFO, __file__, 1, "evicted", (), None)
        record.fields = fields
        return record

    def test_json_has_the_fields_beside_the_message(self) -> None:
        entry = json.loads(JsonFormatter().format(self.record(cause="c1.2", pods=3, message="it is worth less")))
        assert (entry["message"], entry["cause"], entry["pods"]) == ("evicted", "c1.2", 3)
        assert entry["detail"] == "it is worth less"

    def test_text_log_prints_any_fields_on_one_line(self) -> None:
        line = TextFormatter("%(message)s").format(
            self.record(cause="c1.2", reason='said "no"\n\x1b[31m', unit="gang a/b")
        )
        assert line == 'evicted cause=c1.2 reason="said \\"no\\"\\n\\u001b[31m" unit="gang a/b"'

    def test_a_line_without_fields_is_as_it_was(self) -> None:
        record = logging.LogRecord("phalanx.x", logging.INFO, __file__, 1, "so %s", ("much",), None)
        assert TextFormatter("%(message)s").format(record) == "so much"

    def test_a_traceback_follows_the_fields(self) -> None:
        record = self.record(cause="c1")
        try:
            raise ValueError("bad")
        except ValueError:
            record.exc_info = sys.exc_info()
        lines = TextFormatter("%(message)s").format(record).splitlines()
        assert lines[0] == "evicted cause=c1"
        assert lines[-1] == "ValueError: bad"


def test_an_eviction_that_did_not_happen_says_why(caplog: pytest.LogCaptureFixture) -> None:
    evict = Evict("uid-a", "ns", "a", "n1", EvictionReason.PREEMPTED, "", cause="c7.1")
    with caplog.at_level(logging.INFO, "phalanx.daemon.decision_log"):
        DecisionLog().evicted(EvictResult(evict, EvictionOutcome.REFUSED, "403 Forbidden"))
    [line] = told(caplog, "not evicted")
    assert (line["cause"], line["unit"], line["outcome"], line["message"]) == (
        *("c7.1", "pod ns/a"),
        *("refused", "403 Forbidden"),
    )
