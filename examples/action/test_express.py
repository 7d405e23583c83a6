"""The action, as a policy names it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from conftest import Schedule

PODS = {"old": (8, 5), "urgent": (8, 500)}


def test_whoever_is_urgent_is_first(policy: Path, schedule: Schedule) -> None:
    plan = schedule(policy.read_text("utf-8"), {"only": {}}, PODS)
    assert [bind.uid for bind in plan.binds] == ["urgent"]


def test_others_have_their_turn_after_that(policy: Path, schedule: Schedule) -> None:
    plan = schedule(policy.read_text("utf-8"), {"one": {}, "two": {}}, PODS)
    assert [bind.uid for bind in plan.binds] == ["urgent", "old"]


def test_without_a_turn_of_its_own_nobody_is_urgent(policy: Path, schedule: Schedule) -> None:
    text = policy.read_text("utf-8").replace("- name: priority", "- name: gang").replace("  - name: gang\n", "", 1)
    plan = schedule(text.replace("express.least: 100", "express.least: 1000"), {"only": {}}, PODS)
    assert [bind.uid for bind in plan.binds] == ["old"]
