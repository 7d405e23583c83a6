"""MaintenanceWindow objects and signals of nodes: decoding, and isolation of faults."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from phalanx.dialects.core import decode_node
from phalanx.dialects.nodes.maintenance import MAINTENANCE_WINDOWS, MaintenanceWindows, read_window
from phalanx.dialects.nodes.maintenance_signals import NODE_CLAIMS, MaintenanceSignals
from phalanx.dialects.pods.decoder import node_spec
from phalanx.dialects.warnings import ObjectWarnings
from phalanx.model.events import MaintenanceWindowRemoved, MaintenanceWindowUpdated, NodeSignalled
from phalanx.model.maintenance import AtStart, Before, MaintenanceSignal
from phalanx.model.selectors import Requirement

KIND = MAINTENANCE_WINDOWS.served_as("v1alpha1")
CLAIM = NODE_CLAIMS.served_as("v1")
START = 1_796_515_200  # 2026-12-06T00:00:00Z


def window(**spec: Any) -> dict[str, Any]:
    whole = {"nodes": {"names": ["n1"]}, "start": "2026-12-06T00:00:00Z", "duration": "2h", **spec}
    stated = {field: value for field, value in whole.items() if value is not None}
    return {"metadata": {"name": "w", "uid": "uid-w", "generation": 3}, "spec": stated}


def test_every_field_of_a_window_is_read() -> None:
    found = read_window(
        KIND,
        window(
            nodes={"names": ["n2", "n1"], "selector": {"matchLabels": {"rack": "a"}}},
            start="2026-12-06T01:00:00+01:00",
            duration=None,
            end="2026-12-06T03:00:00Z",
            before="surplus",
            closeBefore="24h",
            atStart="evict",
            notice="10m",
            recurrence={"rule": "FREQ=WEEKLY", "timeZone": "Europe/Berlin", "skip": ["2026-12-13"]},
        ),
    )
    assert (found.name, found.uid, found.problem) == ("w", "uid-w", "")
    assert (found.names, found.selector) == (("n1", "n2"), (Requirement("rack", "In", ("a",)),))
    assert (found.start, found.end) == (START, START + 3 * 3600)
    assert (found.before, found.close_before) == (Before.SURPLUS, 86_400)
    assert (found.at_start, found.notice) == (AtStart.EVICT, 600)
    assert [span.start - START for span in found.spans(START, START + 21 * 86_400)] == [0, 14 * 86_400]


def test_absent_fields_of_a_window_have_defaults() -> None:
    found = read_window(KIND, window(nodes={"selector": {}}))
    assert (found.names, found.selector) == ((), ())
    assert (found.before, found.close_before, found.at_start, found.notice) == (
        Before.LIMIT,
        0,
        AtStart.CORDON,
        300,
    )
    assert found.recurrence is None
    assert found.end == START + 7200


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ({"nodes": None}, "spec.nodes is null; write {names: [n1]}"),
        ({"nodes": "n1"}, 'spec.nodes is "n1"; write {names'),
        ({"nodes": {"names": "n1"}}, 'spec.nodes.names is "n1"; write a list'),
        ({"nodes": {"names": [1]}}, "spec.nodes.names is [1]; write a list"),
        (
            {"nodes": {"selector": {"matchExpressions": [{"key": "a", "operator": "Near"}]}}},
            "unknown operator 'Near'",
        ),
        ({"start": "2026-12-06T00:00:00"}, 'spec.start is "2026-12-06T00:00:00"; write a time with its zone'),
        ({"start": 17}, "spec.start is 17; write a time"),
        ({"start": "0001-01-01T00:00:00+23:00"}, "spec.start is"),
        ({"duration": None}, "spec.end is null; write either end, or duration"),
        ({"end": "2026-12-07T00:00:00Z"}, "write either end, or duration"),
        ({"duration": "0s"}, 'spec.duration is "0s"; write one after the start'),
        ({"duration": "two hours"}, 'spec.duration is "two hours"; write a duration such as 90m'),
        ({"duration": "9000h"}, "of at most 8784h"),
        ({"duration": None, "end": "2026-12-05T00:00:00Z"}, "write one after the start, by at most 366 days"),
        ({"before": "never"}, 'spec.before is "never"; write limit, surplus or all'),
        ({"before": "surplus"}, "write atStart: evict with it: else surplus members are not evicted"),
        ({"atStart": 1}, "spec.atStart is 1; write cordon, evict or leave"),
        ({"closeBefore": "-1h"}, "spec.closeBefore"),
        ({"notice": []}, "spec.notice is []"),
        ({"recurrence": "FREQ=DAILY"}, 'spec.recurrence is "FREQ=DAILY"; write {rule'),
        (
            {"recurrence": {"rule": "FREQ=SECONDLY"}},
            'spec.recurrence.rule is "FREQ=SECONDLY"; unknown FREQ=SECONDLY',
        ),
        ({"recurrence": {"rule": "FREQ=DAILY", "timeZone": "Mars"}}, 'spec.recurrence.timeZone is "Mars"; '),
        ({"recurrence": {"rule": "FREQ=DAILY", "skip": ["x"]}}, 'spec.recurrence.skip is ["x"]; '),
        ({"recurrence": {"rule": "FREQ=HOURLY"}}, "the next occurrence starts before this one ends"),
    ],
)
def test_unreadable_field_is_named_and_the_window_closes_no_node(spec: dict[str, Any], says: str) -> None:
    found = read_window(KIND, window(**spec))
    assert says in found.problem
    assert found.problem.startswith("MaintenanceWindow w (phalanx.dev): ")
    assert found.spans(0, 2**40) == ()
    assert found.next_span(0) is None


def test_problem_of_a_window_is_reported_once_and_again_when_it_changes() -> None:
    warnings = ObjectWarnings()
    windows = MaintenanceWindows(warnings)
    for duration in ("x", "x", "y", "1h"):
        windows.updated(KIND, window(duration=duration))
    assert warnings.drain() == []  # valid by now
    windows.updated(KIND, window(duration="x"))
    (told,) = warnings.drain()
    assert (told.reason, told.about.kind, told.about.name) == ("InvalidMaintenanceWindow", "MaintenanceWindow", "w")
    windows.updated(KIND, window(duration="x"))
    assert warnings.drain() == []


def test_windows_are_added_and_removed_and_all_with_their_definition() -> None:
    windows = MaintenanceWindows(ObjectWarnings())
    ((event,), _) = windows.updated(KIND, window())
    assert isinstance(event, MaintenanceWindowUpdated)
    assert windows.seen["w"].generation == 3
    assert windows.removed(KIND, "", "w") == ([MaintenanceWindowRemoved("w")], set())
    assert windows.removed(KIND, "", "w") == ([], set())
    windows.malformed(KIND, "", "w", "uid-w", "not JSON")
    assert windows.unserved(KIND) == ([MaintenanceWindowRemoved("w")], set())
    assert windows.seen == {}


class TestSignals:
    def node(self, conditions: Any = (), **labels: str) -> Any:
        named = {name.replace("_", "-"): value for name, value in labels.items()}
        metadata = {"name": "n1", "uid": "u", "labels": {f"cloud.google.com/{name}": named[name] for name in named}}
        return decode_node(msgspec.json.encode({"metadata": metadata, "status": {"conditions": list(conditions)}}))

    def test_label_of_gke_is_read(self) -> None:
        signals = MaintenanceSignals()
        told = (MaintenanceSignal("label cloud.google.com/scheduled-maintenance-time of node n1", START),)
        made = self.node(scheduled_maintenance_time=str(START))
        assert signals.node(made) == ([NodeSignalled("n1", "Node", told)], set())
        assert signals.node(made) == ([], set())
        assert signals.node(self.node()) == ([NodeSignalled("n1", "Node")], set())
        assert signals.node(self.node()) == ([], set())

    @pytest.mark.parametrize("value", ["tomorrow", "-1", "0", "9" * 30, "2026-12-06T00:00:00Z", "", "١٧"])
    def test_unreadable_label_is_ignored(self, value: str) -> None:
        assert MaintenanceSignals().node(self.node(scheduled_maintenance_time=value)) == ([], set())

    def test_conditions_close_a_node_while_they_are_true(self) -> None:
        signals = MaintenanceSignals()
        kinds = ("Ready", "MaintenancePlanned", "MaintenanceInProgress", "DrainInProgress")
        ((event,), _) = signals.node(self.node({"type": kind, "status": "True"} for kind in kinds))
        assert isinstance(event, NodeSignalled)
        assert [(each.source, each.start) for each in event.signals] == [
            ("condition MaintenanceInProgress of node n1", 0),
            ("condition DrainInProgress of node n1", 0),
        ]
        over = self.node({"type": kind, "status": "False"} for kind in kinds)
        assert signals.node(over) == ([NodeSignalled("n1", "Node")], set())

    def test_deleted_node_has_no_signal(self) -> None:
        signals = MaintenanceSignals()
        signals.node(self.node(scheduled_maintenance_time=str(START)))
        assert signals.node_gone("n1") == ([NodeSignalled("n1", "Node")], set())
        assert signals.node_gone("n1") == ([], set())

    def claim(self, node: str = "n1", expires: str = "720h", **annotations: str) -> dict[str, Any]:
        metadata = {
            "name": "c",
            "creationTimestamp": "2026-12-06T00:00:00Z",
            "annotations": {f"karpenter.sh/{name.replace('_', '-')}": value for name, value in annotations.items()},
        }
        return {"metadata": metadata, "spec": {"expireAfter": expires}, "status": {"nodeName": node}}

    def test_node_claim_of_karpenter_expires(self) -> None:
        told = (MaintenanceSignal("spec.expireAfter of NodeClaim c", START + 720 * 3600),)
        assert MaintenanceSignals().updated(CLAIM, self.claim()) == (
            [NodeSignalled("n1", "NodeClaim", told)],
            set(),
        )

    def test_latest_end_of_a_node_claim_precedes_its_expiry(self) -> None:
        found = self.claim(nodeclaim_termination_timestamp="2026-12-06T01:00:00Z")
        ((event,), _) = MaintenanceSignals().updated(CLAIM, found)
        assert isinstance(event, NodeSignalled)
        assert [each.start for each in event.signals] == [START + 3600]

    @pytest.mark.parametrize("expires", ["Never", "", "soon", "-1h"])
    def test_node_claim_that_never_expires_gives_no_signal(self, expires: str) -> None:
        found = MaintenanceSignals().updated(CLAIM, self.claim(expires=expires))
        assert found == ([NodeSignalled("n1", "NodeClaim")], set())

    def test_node_claim_without_a_node_and_a_deleted_one_give_no_signal(self) -> None:
        signals = MaintenanceSignals()
        assert signals.updated(CLAIM, self.claim(node="")) == ([], set())
        signals.updated(CLAIM, self.claim())
        assert signals.removed(CLAIM, "", "c") == ([NodeSignalled("n1", "NodeClaim")], set())
        signals.updated(CLAIM, self.claim())
        assert signals.unserved(CLAIM) == ([NodeSignalled("n1", "NodeClaim")], set())

    @pytest.mark.parametrize("part", ["metadata", "spec", "status"])
    def test_invalid_node_claim_affects_no_node(self, part: str) -> None:
        claim = self.claim()
        claim[part] = {"name": "c"} if part == "metadata" else "nonsense"
        MaintenanceSignals().updated(CLAIM, claim)


def test_our_mark_on_a_node_is_read() -> None:
    annotations = {"phalanx.dev/cordoned-by": "uid-w.17"}
    wire = {"metadata": {"name": "n1", "uid": "u", "annotations": annotations}}
    assert node_spec(decode_node(msgspec.json.encode(wire))).cordoned_by == "uid-w.17"
