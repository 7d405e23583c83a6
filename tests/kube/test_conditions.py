"""A condition is written only when it says something new, and touches nothing else."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from phalanx.kube.conditions import PodCondition, condition_patch
from phalanx.kube.timestamps import format_micro_time, format_time, parse_time

NOW = 1_767_225_600.9  # 2026-01-01T00:00:00.9Z
WAITS = PodCondition("PodScheduled", "False", "Unschedulable", "0/5 nodes are available")


def patch(wanted: PodCondition = WAITS, current: PodCondition | None = None, **options: Any) -> Any:
    body = condition_patch("uid-a", wanted, current, now=NOW, **options)
    return None if body is None else json.loads(body)


def test_a_new_condition() -> None:
    assert patch() == {
        "metadata": {"uid": "uid-a"},
        "status": {
            "conditions": [
                {
                    "type": "PodScheduled",
                    "status": "False",
                    "reason": "Unschedulable",
                    "message": "0/5 nodes are available",
                    "lastTransitionTime": "2026-01-01T00:00:00Z",
                }
            ]
        },
    }


def test_a_new_text_keeps_the_time_of_the_transition() -> None:
    told = patch(current=msgspec.structs.replace(WAITS, message="0/4 nodes are available"))
    assert "lastTransitionTime" not in told["status"]["conditions"][0]


def test_texts_that_went_away_are_cleared() -> None:
    (condition,) = patch(PodCondition("PodScheduled", "True"), WAITS)["status"]["conditions"]
    assert (condition["reason"], condition["message"]) == ("", "")
    assert condition["lastTransitionTime"] == "2026-01-01T00:00:00Z"


def test_nothing_new_is_not_written() -> None:
    assert patch(current=WAITS) is None
    assert patch(current=WAITS, nominated_node="", current_nominated_node="") is None
    assert patch(current=WAITS, nominated_node="n1", current_nominated_node="n1") is None


@pytest.mark.parametrize(
    ("wanted", "current", "written"),
    [(3, 2, True), (3, 3, False), (None, 2, False), (3, None, False)],
    ids=["newer", "same", "not ours to say", "a server that does not keep it"],
)
def test_the_observed_generation(wanted: int | None, current: int | None, written: bool) -> None:
    told = patch(
        msgspec.structs.replace(WAITS, observed_generation=wanted),
        msgspec.structs.replace(WAITS, observed_generation=current),
    )
    assert (told is not None) is written
    if told is not None:
        assert told["status"]["conditions"][0]["observedGeneration"] == wanted


@pytest.mark.parametrize(("nominated", "written"), [("n1", "n1"), ("", None)])
def test_the_nominated_node_is_set_and_cleared(nominated: str, written: str | None) -> None:
    status = patch(current=WAITS, nominated_node=nominated, current_nominated_node="n0")["status"]
    assert status["nominatedNodeName"] == written
    assert "nominatedNodeName" not in patch()["status"]


def test_a_condition_can_be_read_from_a_pod() -> None:
    text = (
        '{"type":"PodScheduled","status":"False","reason":"Unschedulable","message":"0/5 nodes are available",'
        '"observedGeneration":2,"lastProbeTime":null,"lastTransitionTime":"2026-01-01T00:00:00Z"}'
    )
    read = msgspec.json.decode(text, type=PodCondition)
    assert read == msgspec.structs.replace(WAITS, observed_generation=2)
    assert WAITS.says_the_same(read)


def test_times() -> None:
    assert format_time(NOW) == "2026-01-01T00:00:00Z"
    assert format_micro_time(NOW) == "2026-01-01T00:00:00.900000Z"
    assert format_micro_time(NOW - 0.9) == "2026-01-01T00:00:00.000000Z"
    assert parse_time("2026-01-01T01:00:00.900000123+01:00") == pytest.approx(NOW)
    for wrong in ("soon", "2026-01-01T00:00:00"):
        with pytest.raises(ValueError, match=r"isoformat|time zone"):
            parse_time(wrong)
