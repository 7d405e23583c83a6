"""Actions of installed packages: named in a policy like built-in ones, and guarded like plugins."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
from click.testing import CliRunner

from phalanx.cli.main import cli
from phalanx.scheduling.framework.errors import PolicyError
from phalanx.scheduling.policy.loader import load_policy

from ..cluster.audit import audit
from .scenario import Scenario

POLICY = """
actions: "express, allocate, backfill"
configurations: [{name: express, arguments: {express.least: 100}}]
tiers: [{plugins: [{name: gang}, {name: predicates}]}]
"""
EXPRESS = Path(__file__).parents[2] / "examples" / "action" / "express.py"
FAILING = """
    from phalanx.scheduling.framework.action import Action
    from phalanx.scheduling.actions.allocate import walk

    class Express(Action):
        name = "express"
        arguments = ("express.least",)

        def execute(self, session):
            walk(session, session.units)
            raise LookupError("a bug of an action")
"""


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest):  # type: ignore[no-untyped-def]
    """Install a distribution with one module and its entry points, as pip would place it on the path."""

    def put(code: str, value: str = "express:Express") -> None:
        (tmp_path / "express.py").write_text(textwrap.dedent(code), "utf-8")
        info = tmp_path / "express-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: express\nVersion: 1.0\n", "utf-8")
        (info / "entry_points.txt").write_text(f"[phalanx.actions]\nexpress = {value}\n", "utf-8")
        monkeypatch.syspath_prepend(str(tmp_path))
        monkeypatch.delitem(__import__("sys").modules, "express", raising=False)

    yield put
    __import__("sys").modules.pop("express", None)


def waiting(policy: str) -> Scenario:
    """Room for one gang of two; the older gang is less important than the ones that `express` selects."""
    scenario = Scenario(policy)
    scenario.node("n1", cpu=2)
    scenario.gang("old", 2, created=5).pod("o1", gang="old", cpu=1, priority=5).pod(
        "o2", gang="old", cpu=1, priority=5
    )
    scenario.gang("new", 2, created=9).pod("n1", gang="new", cpu=1, priority=500).pod(
        "n2", gang="new", cpu=1, priority=500
    )
    return scenario


def test_example_action_runs_where_the_policy_names_it(install) -> None:  # type: ignore[no-untyped-def]
    install(EXPRESS.read_text("utf-8"))
    assert {bind.uid for bind in waiting(POLICY.replace("express, allocate", "allocate")).cycle().binds} == {
        "o1",
        "o2",
    }
    assert {bind.uid for bind in waiting(POLICY).cycle().binds} == {"n1", "n2"}


def test_arguments_of_an_installed_action_are_checked(install) -> None:  # type: ignore[no-untyped-def]
    install(EXPRESS.read_text("utf-8"))
    with pytest.raises(PolicyError, match=r"express\.least.*a whole number"):
        load_policy(POLICY.replace("100", "many"))
    with pytest.raises(PolicyError, match=r"unknown argument 'express.most'; did you mean 'express.least'"):
        load_policy(POLICY.replace("express.least", "express.most"))


def test_policy_show_names_an_installed_action(install, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    install(EXPRESS.read_text("utf-8"))
    file = tmp_path / "policy.yaml"
    file.write_text(POLICY, "utf-8")
    shown = CliRunner().invoke(cli, ["policy", "show", "--config", str(file)])
    assert "express, allocate, backfill" in shown.output


@pytest.mark.parametrize("following", ["allocate, backfill", "backfill"])
def test_installed_action_that_raises_is_named_and_decides_nothing(install, following: str) -> None:  # type: ignore[no-untyped-def]
    install(FAILING)
    scenario = waiting(POLICY.replace("allocate, backfill", following))
    bound, failed = set(), []
    for _ in range(10):
        if scenario.scheduler.idle:
            break
        plan = scenario.scheduler.cycle(float(scenario.now))
        bound |= {bind.uid for bind in plan.binds}
        failed += [(failure.what, failure.why) for failure in plan.failures]
        audit(scenario.state)
    assert scenario.scheduler.idle, "what fails must not keep the scheduler busy"
    assert set(failed) == {("action express", "LookupError: a bug of an action")}
    assert bound == ({"o1", "o2"} if "allocate" in following else set())


@pytest.mark.parametrize(
    ("code", "problem"),
    [
        ("Express = dict", "entry point express .express:Express. is not a phalanx Action class"),
        ("raise ImportError('no module named x')", "cannot be loaded: no module named x"),
        (FAILING.replace('"express"', '"allocate"'), "action 'allocate' exists already"),
        (FAILING.replace('name = "express"', "pass"), "its name is ''; give it a single word"),
    ],
)
def test_entry_point_that_is_no_action_stops_the_start(install, code: str, problem: str) -> None:  # type: ignore[no-untyped-def]
    install(code)
    with pytest.raises(PolicyError, match=problem):
        load_policy()
