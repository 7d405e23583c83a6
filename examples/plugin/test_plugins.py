"""The two plugins, as a policy names them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from phalanx.cli.main import cli
from phalanx.plugin import PolicyError
from phalanx.scheduling.policy.loader import load_policy

if TYPE_CHECKING:
    from conftest import Schedule

NODES = {
    "dear": {"example.com/cents-per-hour": "90"},
    "cheap": {"example.com/cents-per-hour": "40"},
    "huge": {"example.com/cents-per-hour": "10", "example.com/least-cores": "4"},
}


def test_small_pods_go_to_the_cheapest_node_that_takes_them(policy: Path, schedule: Schedule) -> None:
    plan = schedule(policy.read_text("utf-8"), NODES, {"small": (1, 0), "large": (4, 0)})
    assert {bind.uid: bind.node for bind in plan.binds} == {"small": "cheap", "large": "huge"}


def test_who_waits_is_told_why(policy: Path, schedule: Schedule) -> None:
    (verdict,) = (
        each.verdict
        for each in schedule(policy.read_text("utf-8"), {"huge": NODES["huge"]}, {"small": (1, 0)}).pods
    )
    assert verdict is not None
    assert "1 node(s) take larger pods only" in verdict.message


def test_without_prices_all_nodes_are_equal_to_it(policy: Path, schedule: Schedule) -> None:
    plan = schedule(policy.read_text("utf-8"), {"a": {}, "b": {}}, {"small": (1, 0)})
    assert [bind.node for bind in plan.binds] == ["a"]


def test_policy_show_lists_them(policy: Path) -> None:
    shown = CliRunner().invoke(cli, ["policy", "show", "--config", str(policy)]).output
    lines = dict(line.split(maxsplit=1) for line in shown.splitlines())
    assert "large-pods-only" in lines["filter"]
    assert lines["static_score"] == "node-price"


def test_a_weight_below_nothing_is_refused(policy: Path) -> None:
    with pytest.raises(
        PolicyError, match=r"\(node-price\): argument weight: -1 is not a whole number of at least 0"
    ):
        load_policy(policy.read_text("utf-8").replace("weight: 2", "weight: -1"))
