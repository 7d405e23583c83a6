"""`phalanx.testing` does as docs/plugins.md shows."""

from __future__ import annotations

import ast
import importlib.metadata
import re
import sys
from pathlib import Path
from typing import Any

import pytest

import phalanx.testing
from phalanx import plugin as plugin_module
from phalanx.model.pod import PodClass
from phalanx.model.run_time import RunTime
from phalanx.scheduling.policy import registry
from phalanx.testing import ClusterScenario, amounts, installed

PAGE = (Path(__file__).parent.parent / "docs" / "plugins.md").read_text("utf-8")
PROJECT = '[project]\nname = "a-test"\n[project.entry-points."phalanx.test"]\nhere = "somewhere:Thing"\n'


def example(word: str) -> str:
    """Return the code block of the page that contains a word."""
    blocks: list[str] = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    (code,) = [block for block in blocks if word in block]
    return code


def test_scenario_of_the_page_holds() -> None:
    exec(compile(example("ClusterScenario()"), "plugins.md", "exec"), {})


def test_page_names_every_word_of_the_scenario() -> None:
    words = {name for name in dir(ClusterScenario) if name[0] != "_"}
    words -= {"within", "used", "observe", "events", "audit", "work", "restart", "becomes_all"}
    assert words <= set(re.findall(r"\w+", PAGE.split("## Test it")[1].split("## When it fails")[0]))


def offer(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Let an installed package offer a plugin of the page."""
    names: dict[str, Any] = dict(vars(plugin_module))
    exec(f"from __future__ import annotations\n{example(f'class {name}')}", names)
    found = [("entry point", names[name])]
    monkeypatch.setattr(registry, "_offered", lambda group: found if group == registry.ENTRY_POINT_GROUP else [])


def test_score_by_load_of_the_page_packs_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    offer(monkeypatch, "FullGpus")
    policy = 'actions: "allocate"\ntiers: [{plugins: [{name: gang}, {name: predicates}, {name: full-gpus}]}]'
    scenario = ClusterScenario(policy).node("idle", gpu=4).node("used", gpu=4).node("without")
    scenario.pod("first", gpu=1, node="used").pod("second", gpu=1).pod("third", cpu=1).settle()
    assert scenario.where("second") == "used"
    assert not scenario.failures


def test_reservations_of_the_page_prefer_a_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    offer(monkeypatch, "ResearchFirst")
    plugins = "{name: gang}, {name: predicates}, {name: research-first}"
    policy = f'actions: "allocate, reserve, backfill"\ntiers: [{{plugins: [{plugins}]}}]'
    scenario = ClusterScenario(policy).nodes(2, cpu=4).queue("research").queue("other")
    ends = {"run_time": RunTime(100), "started": scenario.now, "bound": scenario.now}
    scenario.pod("runs", node="n1", cpu=4, pod_class=PodClass(run_limit=100), more=ends)
    scenario.job("first", 2, cpu=4, queue="other").cycle()
    scenario.now += 1
    scenario.job("second", 2, cpu=4, queue="research").settle()
    scenario.pod("single", cpu=1, queue="other").settle()
    assert "starts no later" not in scenario.why("first").message
    assert "starts no later" in scenario.why("second").message
    assert scenario.why_pod("single").code == "BackfillRejected"


def test_installed_project_is_offered_within_the_block_only(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text(PROJECT, "utf-8")
    before = list(sys.path)
    with installed(tmp_path / "pyproject.toml"):
        (entry,) = importlib.metadata.entry_points(group="phalanx.test")
        assert (entry.name, entry.value) == ("here", "somewhere:Thing")
        assert str(tmp_path) in sys.path
    assert not importlib.metadata.entry_points(group="phalanx.test")
    assert sys.path == before


def test_audit_is_called_after_each_change_and_cycle() -> None:
    seen: list[int] = []
    scenario = ClusterScenario(audit=lambda state: seen.append(len(state.pods)))
    scenario.node("a").pod("one", cpu=1).cycle()
    assert seen == [0, 1, 1]


def test_amounts_have_short_names_for_devices_and_storage() -> None:
    assert dict(amounts(cpu="500m", gpu=2, storage="1Ki")) == {
        "cpu": 500,
        "nvidia.com/gpu": 2,
        "ephemeral-storage": 1024,
    }


def test_package_imports_neither_a_test_framework_nor_the_tests() -> None:
    for path in Path(phalanx.testing.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            names = [each.name for each in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert not {name.partition(".")[0] for name in names} & {"pytest", "tests"}, path
