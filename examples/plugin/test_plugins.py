"""The two plugins, as a policy names them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from phalanx.cli.main import cli
from phalanx.plugin import PolicyError
from phalanx.testing import ClusterScenario, installed

HERE = Path(__file__).parent
POLICY = (HERE / "policy.yaml").read_text("utf-8")
NODES = {
    "dear": {"example.com/cents-per-hour": "90"},
    "cheap": {"example.com/cents-per-hour": "40"},
    "huge": {"example.com/cents-per-hour": "10", "example.com/least-cores": "4"},
}


@pytest.fixture(autouse=True)
def entry_points() -> Iterator[None]:
    with installed(HERE / "pyproject.toml"):
        yield


def cluster(*nodes: str) -> ClusterScenario:
    scenario = ClusterScenario(POLICY)
    for name in nodes:
        scenario.node(name, cpu=8, labels=NODES.get(name, {}))
    return scenario


def test_pod_goes_to_the_cheapest_node_that_takes_its_size() -> None:
    scenario = cluster(*NODES).pod("small", cpu=1).pod("large", cpu=4).settle()
    assert (scenario.where("small"), scenario.where("large")) == ("cheap", "huge")


def test_verdict_of_a_small_pod_names_the_nodes_for_larger_pods() -> None:
    scenario = cluster("huge").pod("small", cpu=1).settle()
    assert "1 node(s) take larger pods only" in scenario.why_pod("small").message


def test_nodes_without_price_are_equal() -> None:
    scenario = cluster("a", "b").pod("small", cpu=1).settle()
    assert scenario.where("small") == "a"


def test_policy_show_lists_both_plugins() -> None:
    shown = CliRunner().invoke(cli, ["policy", "show", "--config", str(HERE / "policy.yaml")]).output
    lines = dict(line.split(maxsplit=1) for line in shown.splitlines())
    assert "large-pods-only" in lines["filter"]
    assert lines["static_score"] == "node-price"


def test_negative_weight_is_refused() -> None:
    with pytest.raises(
        PolicyError, match=r"\(node-price\): argument weight: -1 is not a whole number of at least 0"
    ):
        ClusterScenario(POLICY.replace("weight: 2", "weight: -1"))
