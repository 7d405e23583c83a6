"""Alerts query exported metrics, state a fix, and fire under their condition."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.monitoring.promtool import promtool
from tests.monitoring.queries import faults

ROOT = Path(__file__).parent.parent.parent
MONITORING = ROOT / "deploy/monitoring"
ALERTS: list[dict[str, Any]] = [
    rule
    for group in yaml.safe_load((MONITORING / "alerts.yaml").read_text("utf-8"))["groups"]
    for rule in group["rules"]
]
CASES = yaml.safe_load((MONITORING / "tests/alerts_test.yaml").read_text("utf-8"))["tests"]
each_alert = pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: alert["alert"])


def anchors(document: str) -> set[str]:
    """The sections of a document, as links name them."""
    titles = re.findall(r"^#+ (.+)$", (ROOT / document).read_text("utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}


@each_alert
def test_an_alert_asks_for_metrics_and_labels_that_there_are(alert: dict[str, Any]) -> None:
    assert faults(alert["expr"]) == []


@each_alert
def test_alert_states_the_problem_and_links_its_fix(alert: dict[str, Any]) -> None:
    notes = alert["annotations"]
    assert set(notes) == {"summary", "description", "runbook_url"}
    assert notes["summary"].endswith(".")
    assert notes["description"] != notes["summary"]
    page, _, anchor = notes["runbook_url"].partition("#")
    assert page == "https://phalanx.dev/alerts.html"
    assert anchor == alert["alert"].lower()
    assert anchor in anchors("docs/alerts.md")
    assert alert["labels"]["severity"] in ("warning", "critical")


def test_every_section_is_of_an_alert() -> None:
    assert anchors("docs/alerts.md") - {alert["alert"].lower() for alert in ALERTS} == {"alerts-cause-and-fix"}


@each_alert
def test_alert_is_tested_with_data_that_fires_it_and_data_that_does_not(alert: dict[str, Any]) -> None:
    tried = [check for case in CASES for check in case["alert_rule_test"] if check["alertname"] == alert["alert"]]
    assert {bool(check["exp_alerts"]) for check in tried} == {True, False}


@pytest.mark.slow
def test_promtool_accepts_the_alerts_and_their_tests() -> None:
    for arguments in (
        ["check", "rules", str(MONITORING / "alerts.yaml")],
        ["test", "rules", str(MONITORING / "tests/alerts_test.yaml")],
    ):
        done = subprocess.run([promtool(), *arguments], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("query", "fault"),
    [
        ('phalanx_gang{job="phalanx"}', "there is no metric phalanx_gang"),
        ('phalanx_cycle_duration_seconds{job="phalanx"}', "there is no metric phalanx_cycle_duration_seconds"),
        ('phalanx_gangs{job="phalanx", phase="waiting"}', "phalanx_gangs has no label phase"),
        ("phalanx_gangs", "phalanx_gangs of any job"),
    ],
)
def test_a_mistake_in_a_query_is_found(query: str, fault: str) -> None:
    assert faults(query) == [fault]


def test_a_label_that_nothing_has_is_found_where_it_is_kept() -> None:
    [fault] = faults('sum by (queue) (phalanx_gangs{job="phalanx"})')
    assert fault.endswith("has the label queue")
