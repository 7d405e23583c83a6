"""The Grafana board, and the alerts as an object: as they are made, and whole."""

from __future__ import annotations

import importlib.util
import json
import re
from collections.abc import Iterator
from itertools import combinations
from types import ModuleType
from typing import Any

import pytest
import yaml

from tests.install.helm import run
from tests.monitoring.queries import faults, metrics
from tests.monitoring.test_alerts import ALERTS, MONITORING


def _generate() -> ModuleType:
    spec = importlib.util.spec_from_file_location("generate", MONITORING / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


generate = _generate()
BOARD: dict[str, Any] = generate.board()
GRAPHS = [panel for panel in BOARD["panels"] if panel["type"] != "row"]


def expressions(panel: dict[str, Any]) -> Iterator[str]:
    """Return the queries as Prometheus receives them: Grafana's variables are replaced."""
    for target in panel["targets"]:
        yield (
            target["expr"].replace("$__rate_interval", "5m").replace("$job", "phalanx").replace("$resource", "cpu")
        )


def test_committed_board_equals_the_generated_one() -> None:
    again = "run `python deploy/monitoring/generate.py`"
    for path, content in generate.files().items():
        assert path.read_text("utf-8") == content, again


def test_the_object_has_the_alerts() -> None:
    rule = yaml.safe_load(generate.rule())
    assert (rule["apiVersion"], rule["kind"]) == ("monitoring.coreos.com/v1", "PrometheusRule")
    assert [alert for group in rule["spec"]["groups"] for alert in group["rules"]] == ALERTS


def test_panels_have_names_of_their_own_and_do_not_overlap() -> None:
    assert len({panel["id"] for panel in BOARD["panels"]}) == len(BOARD["panels"])
    assert len({panel["title"] for panel in BOARD["panels"]}) == len(BOARD["panels"])
    places = [panel["gridPos"] for panel in BOARD["panels"]]
    assert all(place["x"] + place["w"] <= 24 for place in places)
    for one, other in combinations(places, 2):
        beside = one["x"] + one["w"] <= other["x"] or other["x"] + other["w"] <= one["x"]
        below = one["y"] + one["h"] <= other["y"] or other["y"] + other["h"] <= one["y"]
        assert beside or below, (one, other)


def test_every_panel_asks_the_data_source_that_is_chosen() -> None:
    chosen = {"type": "prometheus", "uid": "${datasource}"}
    assert {variable["name"] for variable in BOARD["templating"]["list"]} == {"datasource", "job", "resource"}
    for panel in GRAPHS:
        assert panel["datasource"] == chosen
        assert all(target["datasource"] == chosen for target in panel["targets"])


@pytest.mark.parametrize("panel", GRAPHS, ids=lambda panel: panel["title"])
def test_a_panel_asks_for_metrics_and_labels_that_there_are(panel: dict[str, Any]) -> None:
    for expression in expressions(panel):
        assert faults(expression) == []
    kept = {label for expression in expressions(panel) for label in re.findall(r"by \(([^)]*)\)", expression)}
    for target in panel["targets"]:
        for label in re.findall(r"{{(\w+)}}", target["legendFormat"]):
            assert label == "instance" or any(label in labels.split(", ") for labels in kept)


def test_metrics_of_alerts_are_on_the_board() -> None:
    shown = {name for panel in GRAPHS for expression in expressions(panel) for name in metrics(expression)}
    asked = {name for alert in ALERTS for name in metrics(alert["expr"])}
    # Reachability and metrics of 0 or 1 are for alerts only.
    assert asked - shown <= {
        "up",
        "phalanx_ready",
        "phalanx_self_check_failures_total",
        "scheduler_cache_size",
    }


@pytest.mark.slow
@pytest.mark.parametrize("major", ["3", "4"])
async def test_the_chart_brings_both_where_it_is_asked_for_them(major: str) -> None:
    wanted = ["--set=metrics.prometheusRule=true", "--set=metrics.dashboards=true"]
    text = await run(major, "template", "phalanx", MONITORING.parent.parent / "charts/phalanx", *wanted)
    made = {each["kind"]: each for each in yaml.safe_load_all(text) if each}
    assert made["PrometheusRule"]["spec"] == yaml.safe_load(generate.rule())["spec"]
    [board] = [
        each["data"]["phalanx.json"]
        for each in yaml.safe_load_all(text)
        if each and each["metadata"].get("labels", {}).get("grafana_dashboard") == "1"
    ]
    assert json.loads(board) == BOARD
