"""`phalanx policy lint`: each mistake with its line and its correction."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result

from phalanx.cli.main import cli
from phalanx.scheduling.framework.errors import PolicyError
from phalanx.scheduling.policy.lint import lint_policy
from phalanx.scheduling.policy.loader import DEFAULT_POLICY, load_policy


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


def test_built_in_policy_has_no_findings(tmp_path: Path) -> None:
    result = lint(tmp_path, DEFAULT_POLICY, "--strict")
    assert (result.exit_code, result.output) == (0, "")


def test_every_mistake_has_its_line_and_the_nearest_name(tmp_path: Path) -> None:
    result = lint(tmp_path, BAD)
    assert result.exit_code == 1
    told = [line.partition("policy.yaml:")[2] for line in result.output.splitlines()]
    assert [line.split(":")[0] for line in told if ": error: " in line] == ["1", "5", "7", "11", "13"]
    assert [line.split(":")[0] for line in told if ": warning: " in line] == ["1"]
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
def test_doubtful_settings_are_warnings(actions: str, plugin: str, line: int, told: str) -> None:
    text = f"{actions}\ntiers:\n- plugins:\n  - name: predicates\n  - name: {plugin}\n"
    (found,) = [each for each in lint_policy(text) if told in each.message]
    assert (found.line, found.severity) == (line, "warning")


def test_autoscaler_without_enqueue_is_a_warning_and_an_unknown_one_an_error() -> None:
    tiers = "tiers:\n- plugins:\n  - name: predicates\nphalanx:\n  autoscaler: "
    (found,) = [
        each for each in lint_policy(f'actions: "allocate"\n{tiers}karpenter\n') if "enqueue" in each.message
    ]
    assert (found.line, found.severity) == (6, "warning")
    assert lint_policy(f'actions: "enqueue, allocate"\n{tiers}karpenter\n') == []
    (found,) = lint_policy(f'actions: "enqueue, allocate"\n{tiers}escalator\n')
    assert (found.line, found.severity) == (6, "error")
    assert "'escalator' is unknown; expected none, cluster-autoscaler or karpenter" in found.message


def test_action_that_moves_pods_counts_as_evicting() -> None:
    text = 'actions: "allocate, defragment"\ntiers:\n- plugins: [{name: predicates}, {name: conformance}]\n'
    assert not [each for each in lint_policy(text) if "conformance" in each.message]


def test_warnings_alone_succeed_unless_strict(tmp_path: Path) -> None:
    text = 'actions: "allocate, reclaim"\ntiers:\n- plugins: [{name: predicates}]\n'
    assert lint(tmp_path, text).exit_code == 0
    assert lint(tmp_path, text, "--strict").exit_code == 1


def test_policy_in_a_config_map_is_checked_with_the_line_numbers_of_the_file(tmp_path: Path) -> None:
    inner = "".join(f"    {line}\n" for line in BAD.splitlines())
    text = f"apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: c}}\ndata:\n  volcano-scheduler.conf: |\n{inner}"
    found = json.loads(lint(tmp_path, text, "-o", "json").output)
    assert [each["line"] for each in found if each["severity"] == "error"] == [6, 10, 12, 16, 18]
    assert [each["line"] for each in found if each["severity"] == "warning"] == [6]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("a: [", "not YAML"),
        ("- a", "expected a mapping"),
        ("kind: KubeSchedulerConfiguration", "phalanx migrate"),
        ("kind: ConfigMap\ndata: {a: b}", "none of its data"),
        ("phalanx: {dialects: {matchPolicies: {nobody: only-waiting}}}", "nobody"),
        (
            "phalanx: {dialects: {matchPolicies: {kube-batch: whatever}}}",
            "kube-batch: unknown value 'whatever'; expected one of",
        ),
    ],
)
def test_file_that_is_no_policy_is_reported(tmp_path: Path, text: str, told: str) -> None:
    result = lint(tmp_path, text)
    assert result.exit_code == 1
    assert told in result.output


def test_missing_file_is_a_usage_error() -> None:
    assert CliRunner().invoke(cli, ["policy", "lint", "/nowhere"]).exit_code == 2


TWICE = """\
actions: "allocate"
tiers:
- plugins:
  - name: gang
    name: predicates
actions: "enqueue, allocate"
tiers: []
"""


def test_duplicate_key_is_an_error_with_both_lines() -> None:
    found = [(each.line, each.message) for each in lint_policy(TWICE) if each.severity == "error"]
    assert found == [
        (5, "tiers[0].plugins[0].name: the key occurs twice, on lines 4 and 5; keep one of them"),
        (6, "actions: the key occurs twice, on lines 1 and 6; keep one of them"),
        (7, "tiers: the key occurs twice, on lines 2 and 7; keep one of them"),
    ]


def test_scheduler_does_not_start_with_a_duplicate_key() -> None:
    with pytest.raises(PolicyError, match="actions: the key occurs twice, on lines 1 and 6"):
        load_policy(TWICE)


def test_duplicate_key_in_a_config_map_has_the_line_numbers_of_the_file() -> None:
    inner = "".join(f"    {line}\n" for line in TWICE.splitlines())
    text = f"apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: c}}\ndata:\n  volcano-scheduler.conf: |\n{inner}"
    assert [(each.line, each.message) for each in lint_policy(text) if "actions" in each.message] == [
        (11, "actions: the key occurs twice, on lines 6 and 11; keep one of them")
    ]


def test_duplicate_entry_of_a_config_map_is_an_error() -> None:
    entry = "  a: |\n    actions: allocate\n    tiers: [{plugins: [{name: predicates}]}]\n"
    found = lint_policy(f"kind: ConfigMap\ndata:\n{entry}{entry}")
    assert [(each.line, each.message) for each in found if each.severity == "error"] == [
        (6, "data.a: the key occurs twice, on lines 3 and 6; keep one of them")
    ]


def test_merged_keys_and_keys_of_different_mappings_are_not_duplicates() -> None:
    text = """\
actions: "enqueue, allocate"
tiers:
- plugins:
  - name: predicates
    arguments: &some {}
  - name: nodeorder
    arguments: {<<: *some}
"""
    assert lint_policy(text) == []


def test_error_hides_no_warning() -> None:
    text = 'actions: "allocate, reclaim"\ntiers:\n- plugins:\n  - name: predicates\n    enabelJobOrder: true\n'
    assert [(each.line, each.severity) for each in lint_policy(text)] == [(1, "warning"), (5, "error")]


MISSPELT = [
    ('actions: "allocate, preemt"', "conformance"),
    ('actions: "allocate, reclaim"', "proportin"),
    ('actions: "allocate, somebodys"', "conformance"),
]


@pytest.mark.parametrize(("actions", "plugin"), MISSPELT)
def test_misspelt_setting_is_not_reported_as_missing_too(actions: str, plugin: str) -> None:
    text = f"{actions}\ntiers:\n- plugins:\n  - name: predictes\n  - name: {plugin}\n"
    assert {each.severity for each in lint_policy(text)} == {"error"}


def test_negative_weight_is_a_warning() -> None:
    arguments = "{nodeaffinity.weight: -3}"
    plugins = f"[{{name: predicates}}, {{name: nodeorder, arguments: {arguments}}}]"
    text = f"actions: allocate\ntiers:\n- plugins: {plugins}\n"
    (found,) = lint_policy(text)
    assert found.severity == "warning"
    assert "nodeaffinity.weight is -3: nodes with a high score" in found.message


def test_page_shows_the_actual_findings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (Path(__file__).parents[2] / "docs" / "policy.md").read_text()
    shown = page.partition("For this `policy.yaml`")[2]
    policy = shown.partition("```yaml\n")[2].partition("```")[0]
    said = shown.partition("$ phalanx policy lint policy.yaml\n")[2].partition("```")[0]
    monkeypatch.chdir(tmp_path)
    Path("policy.yaml").write_text(policy)
    assert CliRunner().invoke(cli, ["policy", "lint", "policy.yaml"]).output == said


def config_map(tmp_path: Path, **policies: str) -> str:
    file = tmp_path / "configmap.yaml"
    file.write_text(yaml.safe_dump({"apiVersion": "v1", "kind": "ConfigMap", "data": policies}))
    return str(file)


def test_show_accepts_the_config_map_that_lint_reads(tmp_path: Path) -> None:
    result = CliRunner().invoke(cli, ["policy", "show", "--config", config_map(tmp_path, a=DEFAULT_POLICY)])
    alone = CliRunner().invoke(cli, ["policy", "show"])
    assert (result.exit_code, result.output) == (0, alone.output)


def test_show_requires_a_choice_among_several_policies(tmp_path: Path) -> None:
    file = config_map(tmp_path, a=DEFAULT_POLICY, b=DEFAULT_POLICY)
    result = CliRunner().invoke(cli, ["policy", "show", "--config", file])
    assert (result.exit_code, "it holds a, b" in result.output) == (1, True)
