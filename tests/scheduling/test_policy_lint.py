"""`phalanx policy lint`: each mistake with its line, and what to write instead."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from phalanx.cli.main import cli
from phalanx.scheduling.policy.lint import lint_policy
from phalanx.scheduling.policy.loader import DEFAULT_POLICY


def lint(tmp_path: Path, text: str, *arguments: str) -> Result:
    file = tmp_path / "policy.yaml"
    file.write_text(text)
    return CliRunner().invoke(cli, ["policy", "lint", str(file), *arguments])


BAD = """\
actions: "enqueue, alocate"
tiers:
- plugins:
  - name: gang
    enableJobOrdr: true
- plugins:
  - name: binpak
  - name: nodeorder
    arguments:
      leastrequested.weight: 1
      mostrequested.wieght: 1
phalanx:
  evictions: later
"""


def test_the_built_in_policy_is_clean(tmp_path: Path) -> None:
    result = lint(tmp_path, DEFAULT_POLICY, "--strict")
    assert (result.exit_code, result.output) == (0, "")


def test_every_mistake_has_its_line_and_the_nearest_word(tmp_path: Path) -> None:
    result = lint(tmp_path, BAD)
    assert result.exit_code == 1
    told = [line.partition("policy.yaml:")[2] for line in result.output.splitlines()]
    assert [line.split(":")[0] for line in told] == ["1", "5", "7", "11", "13"]
    for word in ("'allocate'", "'enableJobOrder'", "'binpack'", "'mostrequested.weight'", "delete or eviction-api"):
        assert word in result.output


DOUBTS = [
    ('actions: "allocate, reclaim"', "priority", 1, "proportion or capacity"),
    ('actions: "enqueue, allocate, reserve"', "proportion", 1, "exceededRunTimes"),
    ('actions: "allocate"', "overcommit", 1, "name enqueue first"),
    ('actions: "allocate, preempt, gangpreempt"', "priority", 1, "write preempt alone"),
    ('actions: "allocate, shuffle"', "priority", 1, "rescheduling or tdm"),
    ('actions: "allocate"', "pdb", 5, "no action of the policy evicts"),
    ('actions: "allocate"', "reservation", 5, "sla"),
]


@pytest.mark.parametrize(("actions", "plugin", "line", "told"), DOUBTS)
def test_doubts(actions: str, plugin: str, line: int, told: str) -> None:
    text = f"{actions}\ntiers:\n- plugins:\n  - name: predicates\n  - name: {plugin}\n"
    (found,) = [each for each in lint_policy(text) if told in each.message]
    assert (found.line, found.severity) == (line, "warning")


def test_an_action_that_moves_pods_evicts() -> None:
    text = 'actions: "allocate, defragment"\ntiers:\n- plugins: [{name: predicates}, {name: conformance}]\n'
    assert not [each for each in lint_policy(text) if "conformance" in each.message]


def test_warnings_alone_are_good_unless_strict(tmp_path: Path) -> None:
    text = 'actions: "allocate, reclaim"\ntiers:\n- plugins: [{name: predicates}]\n'
    assert lint(tmp_path, text).exit_code == 0
    assert lint(tmp_path, text, "--strict").exit_code == 1


def test_a_config_map_is_looked_into_and_its_lines_are_the_files(tmp_path: Path) -> None:
    inner = "".join(f"    {line}\n" for line in BAD.splitlines())
    text = f"apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: c}}\ndata:\n  volcano-scheduler.conf: |\n{inner}"
    found = json.loads(lint(tmp_path, text, "-o", "json").output)
    assert [each["line"] for each in found] == [6, 10, 12, 16, 18]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("a: [", "not YAML"),
        ("- a", "expected a mapping"),
        ("kind: KubeSchedulerConfiguration", "phalanx migrate"),
        ("kind: ConfigMap\ndata: {a: b}", "none of its data"),
        ("phalanx: {dialects: {matchPolicies: {nobody: only-waiting}}}", "nobody"),
    ],
)
def test_what_is_no_policy_is_said_so(tmp_path: Path, text: str, told: str) -> None:
    result = lint(tmp_path, text)
    assert result.exit_code == 1
    assert told in result.output


def test_a_file_that_is_not_there_is_a_matter_of_usage() -> None:
    assert CliRunner().invoke(cli, ["policy", "lint", "/nowhere"]).exit_code == 2
