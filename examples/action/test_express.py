"""The action, as a policy names it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from phalanx.testing import ClusterScenario, installed

HERE = Path(__file__).parent
POLICY = (HERE / "policy.yaml").read_text("utf-8")


@pytest.fixture(autouse=True)
def entry_points() -> Iterator[None]:
    with installed(HERE / "pyproject.toml"):
        yield


def order(policy: str, nodes: int) -> list[str]:
    """Return the pods "old" (priority 5) and "urgent" (500), one for a node, in the order of their bindings."""
    scenario = ClusterScenario(policy).nodes(nodes, cpu=8)
    return scenario.pod("old", cpu=8, priority=5).pod("urgent", cpu=8, priority=500).settle().order


def test_urgent_pod_is_first() -> None:
    assert order(POLICY, nodes=1) == ["urgent"]


def test_other_pods_have_their_turn_afterwards() -> None:
    assert order(POLICY, nodes=2) == ["urgent", "old"]


def test_no_pod_below_the_least_priority_is_urgent() -> None:
    text = POLICY.replace("- name: priority", "- name: gang").replace("  - name: gang\n", "", 1)
    assert order(text.replace("express.least: 100", "express.least: 1000"), nodes=1) == ["old"]
