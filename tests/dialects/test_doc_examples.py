"""Examples of the user documentation: they can be applied unchanged and without warnings."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from phalanx.dialects.intake import Intake
from phalanx.dialects.kinds import ServedKind
from phalanx.dialects.nodes.hypernodes import HYPER_NODES, read_hypernode
from phalanx.dialects.quotas.budgets import BUDGET, parse_budget
from phalanx.dialects.quotas.eviction_limits import MIN_RUN_TIME
from phalanx.model.account import EvictionRate
from phalanx.model.events import AccountUpdated
from tests.dialects.objects import ACCOUNT_KINDS, VOLCANO, VOLCANO_QUEUE, read_account, read_group

DOCS = Path(__file__).parents[2] / "docs"
_BLOCK = re.compile(r"^```yaml\n(.*?)^```", re.M | re.S)


def documents(name: str) -> Iterator[dict[str, Any]]:
    for block in _BLOCK.findall((DOCS / name).read_text(encoding="utf-8")):
        for document in yaml.safe_load_all(block):
            yield document if isinstance(document, dict) else {}


def examples() -> Iterator[dict[str, Any]]:
    for name in ("quotas.md", "queues.md", "run-times.md"):
        yield from documents(name)


OBJECTS = [example for example in examples() if example.get("kind") not in (None, "PodGroup")]


def served(document: dict[str, Any]) -> ServedKind:
    group, _, version = document["apiVersion"].partition("/")
    (kind,) = [kind for kind in ACCOUNT_KINDS if (kind.group, kind.kind) == (group, document["kind"])]
    assert version in kind.versions
    return kind.served_as(version)


@pytest.mark.parametrize("document", OBJECTS, ids=lambda document: document["kind"])
def test_example_is_read_without_a_warning(document: dict[str, Any]) -> None:
    door = Intake(["phalanx"])
    events = door.account(served(document), document)
    assert any(isinstance(event, AccountUpdated) and event.account.source for event in events)
    assert door.drain_warnings() == []


def test_example_of_each_kind_exists() -> None:
    assert {document["kind"] for document in OBJECTS} == {"Queue", "ElasticQuota", "ElasticQuotaTree"}


def test_example_of_a_budget_is_read() -> None:
    budgets = [
        annotations[BUDGET]
        for example in examples()
        if BUDGET in (annotations := example.get("metadata", {}).get("annotations", {}))
    ]
    assert [parse_budget(text)[1] for text in budgets] == [[]]


def test_example_of_eviction_limits_is_read() -> None:
    (limits,) = [
        annotations
        for example in examples()
        if MIN_RUN_TIME in (annotations := example.get("metadata", {}).get("annotations", {}))
    ]
    queue = {"metadata": {"name": "q", "annotations": limits}}
    (account,) = read_account(VOLCANO_QUEUE, queue).accounts
    assert (account.min_run_time, account.eviction_rate) == (600, EvictionRate(10, 60))


def test_examples_of_topologies_are_read_without_a_warning() -> None:
    seen: list[str] = []
    for document in documents("topology.md"):
        if document.get("kind") == "HyperNode":
            found, faults = read_hypernode(HYPER_NODES.served_as("v1alpha1"), document)
            assert (found.problem, faults, found.tier) == ("", (), document["spec"]["tier"])
        elif document.get("kind") == "PodGroup":
            (group,) = read_group(VOLCANO, document)
            assert (group.problem, group.warnings) == (None, ())
            assert group.topology is not None
        seen.append(document.get("kind", ""))
    assert (seen.count("HyperNode"), seen.count("PodGroup")) == (2, 2)
