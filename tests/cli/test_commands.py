"""Command lines that run nothing: help, mistakes, policies."""

from __future__ import annotations

import json
from pathlib import Path

import click.testing
import pytest

from phalanx.cli.main import cli


def run(*arguments: str) -> click.testing.Result:
    return click.testing.CliRunner().invoke(cli, arguments)


def test_help_names_every_command_with_a_line_of_its_own() -> None:
    shown = run("--help")
    assert shown.exit_code == 0
    for command in (
        "up",
        "demo",
        "apiserver",
        "node-agent",
        "install",
        "scheduler",
        "submit",
        "job",
        "jobs",
        "nodes",
        "order",
        "reservations",
        "hold",
        "release",
        "cancel",
        "move",
        "shell-commands",
        "why",
        "queue",
        "quota",
        "policy",
    ):
        assert any(line.split()[:1] == [command] for line in shown.output.splitlines()), command


@pytest.mark.parametrize(
    "command",
    [
        "up",
        "demo",
        "apiserver",
        "node-agent",
        "install",
        "scheduler",
        "why",
        "queue",
        "submit",
        "job",
        *(f"job {each}" for each in ("list", "describe", "suspend", "resume", "restart", "cancel", "wait", "logs")),
        "jobs",
        "nodes",
        "order",
        "reservations",
        "hold",
        "release",
        "cancel",
        "move",
        "shell-commands",
        "queue list",
        "queue tree",
        "queue describe",
        "quota",
        "quota list",
        "quota tree",
        "quota describe",
        "policy show",
    ],
)
def test_every_command_explains_itself(command: str) -> None:
    shown = run(*command.split(), "--help")
    assert shown.exit_code == 0, shown.output
    assert len(shown.output.splitlines()) > 5


def test_demo_list_names_the_scenarios() -> None:
    listed = json.loads(run("demo", "--list", "-o", "json").output)
    names = [entry["name"] for entry in listed]
    assert names[:5] == ["tensorflow", "deadlock", "last-pod-group", "gang-groups", "job-ready"]
    assert names[5:10] == ["gang-preemption", *(f"elastic-quota-{number}" for number in range(1, 5))]
    assert names[10:14] == ["queues", "reclaim", "fair-share", "topology"]
    assert names[14:] == ["pytorch", "restart", "spark", "many-clusters"]
    table = run("demo", "--list").output
    assert [line.split()[0] for line in table.splitlines()] == names


def test_an_unknown_scenario_is_a_usage_error_that_names_the_known_ones() -> None:
    refused = run("demo", "tensorflaw")
    assert refused.exit_code == 2
    assert "tensorflow" in refused.output


@pytest.mark.parametrize("target", [["pod/"], ["deployment/web"], ["pod", "a", "b"]])
def test_why_refuses_targets_that_are_none(target: list[str]) -> None:
    refused = run("why", *target)
    assert refused.exit_code == 2
    assert "pod" in refused.output


def test_a_missing_kubeconfig_is_one_plain_line(tmp_path: Path) -> None:
    refused = run("why", "pod/x", "--kubeconfig", str(tmp_path / "nowhere"))
    assert refused.exit_code == 1
    assert "nowhere" in refused.output
    assert "Traceback" not in refused.output


def test_policy_show_prints_the_pipeline_the_eviction_rules_and_the_inactive_parts(tmp_path: Path) -> None:
    shown = json.loads(run("policy", "show", "-o", "json").output)
    assert shown["actions"] == ["enqueue", "allocate", "preempt", "reclaim", "reserve", "backfill"]
    assert shown["pipeline"]["gang_order"] == ["priority", "gang", "drf"]
    assert shown["pipeline"]["evict_veto"] == ["protection", "selfprotection", "conformance"]
    assert shown["eviction"]["reclaim"] is True
    assert shown["inactive"] == []
    file = tmp_path / "policy.yaml"
    file.write_text(
        "actions: allocate, gangpreempt\ntiers: [{plugins: [{name: predicates},\n"
        "  {name: deviceshare, arguments: {deviceshare.NodeLockEnable: true}}]}]\n"
        "configurations: [{name: gangpreempt, arguments: {allowWholeBundle: false, maxDomains: 2}}]\n"
        "phalanx: {evictions: eviction-api}\n"
    )
    lines = run("policy", "show", "--config", str(file)).output.splitlines()
    assert lines[-4:] == [
        "evictions             preempt: victims on any nodes; only surplus members",
        "evictions             through the Eviction API",
        "note: plugin deviceshare: argument deviceshare.NodeLockEnable is accepted but has no effect in this "
        "version",
        "note: action gangpreempt: argument maxDomains has no effect in this version",
    ]


def test_policy_show_lists_the_features_of_installed_packages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert json.loads(run("policy", "show", "-o", "json").output)["features"] == []
    (tmp_path / "longest_wait.py").write_text(
        "from phalanx.plugin import CyclePlugin\n"
        "class LongestWait(CyclePlugin):\n"
        "    name = 'longest-wait'\n"
        "    def note(self, of): return ''\n"
        "    def advance(self, now): pass\n"
    )
    info = tmp_path / "longest_wait-1.2.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: longest-wait-feature\nVersion: 1.2\n")
    (info / "entry_points.txt").write_text("[phalanx.cycle_plugins]\nwaits = longest_wait:LongestWait\n")
    monkeypatch.syspath_prepend(tmp_path)
    (feature,) = json.loads(run("policy", "show", "-o", "json").output)["features"]
    assert feature == {
        "name": "longest-wait",
        "points": ["advance", "note"],
        "distribution": "longest-wait-feature 1.2",
    }
    lines = run("policy", "show").output.splitlines()
    assert "feature               longest-wait (longest-wait-feature 1.2): advance, note" in lines


def test_policy_show_lists_every_mistake_at_once(tmp_path: Path) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text(
        'actions: "alocate"\ntiers:\n- plugins:\n  - name: binpak\n  - name: nodeorder\n    arguments: {x: 1}\n'
    )
    refused = run("policy", "show", "--config", str(file))
    assert refused.exit_code == 1
    assert "'alocate'; did you mean 'allocate'?" in refused.output
    assert "'binpak'; did you mean 'binpack'?" in refused.output
    assert "unknown argument 'x'" in refused.output


@pytest.mark.parametrize(
    ("option", "value"), [("--scheduler-name", ""), ("--metrics-address", "nonsense"), ("--concurrency", "0")]
)
def test_the_scheduler_refuses_options_that_cannot_work(option: str, value: str) -> None:
    refused = run("scheduler", option, value)
    assert refused.exit_code == 2
    assert option in refused.output
