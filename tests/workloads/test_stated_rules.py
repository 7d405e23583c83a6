"""Rules that a policy states, and rules that a package brings."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from phalanx.dialects.dialect import Dialect
from phalanx.dialects.intake import Intake
from phalanx.dialects.kinds import ServedKind
from phalanx.dialects.options import DialectOptions
from phalanx.dialects.registry import BUILT_IN
from phalanx.dialects.workloads.rule import Membership, WorkloadRule
from tests.dialects.objects import pod
from tests.workloads.played import Played

TEAM = ServedKind("example.com", "v1", "teams", "Team")
OF = "example.com/v1/Team/t"


def options(**rule: Any) -> DialectOptions:
    stated = {"apiVersion": "example.com/v1", "kind": "Team", **rule}
    return msgspec.convert({"workloads": [stated]}, DialectOptions)


def played(**rule: Any) -> Played:
    play = Played()
    play.intake = Intake(["phalanx"], options(**rule))
    return play


def test_unknown_kind_gets_its_minimum_from_a_path() -> None:
    play = played(minimum=["spec.leaders", "spec.groups.*.replicas"]).room(8)
    play.owner(TEAM, "t", leaders=1, groups=[{"replicas": 2}, {"replicas": 1}])
    play.create("a", "b", "c", of=OF).run()
    assert play.placed() == []
    assert len(play.create("d", of=OF).run().placed()) == 4


def test_parts_of_it_may_start_whole() -> None:
    play = played(minimum=["spec.min"], subgroup="example.com/rack", subgroupSize="spec.size").room(3)
    play.owner(TEAM, "t", min=2, size=2)
    for rack in ("x", "y"):
        play.create(f"{rack}1", f"{rack}2", of=OF, labels={"example.com/rack": rack})
    play.run()
    assert sorted(len(play.placed(rack)) for rack in ("x", "y")) == [0, 2]


def test_a_number_that_is_none_is_named() -> None:
    play = played(minimum=["spec.min"]).owner(TEAM, "t", min="two")
    (warning,) = play.intake.drain_warnings()
    assert (warning.about.name, warning.message) == (
        "t",
        'spec.min is "two"; write a whole number of at least 0, such as 3; until then its new pods are held',
    )


@pytest.mark.parametrize("rule", [{"minimum": []}, {"minimum": ["replicas"]}, {"minimum": ["spec.n"], "kind": ""}])
def test_a_rule_that_says_nothing_is_refused(rule: dict[str, Any]) -> None:
    with pytest.raises(msgspec.ValidationError, match="write"):
        options(**rule)


def test_rule_that_raises_is_skipped_and_the_remaining_ones_apply() -> None:
    def broken(pod: Any) -> Membership | None:
        raise RuntimeError("broken")

    brought = Dialect("brought", workloads=(WorkloadRule("Broken", broken, labels=("team",)),))
    intake = Intake(["phalanx"], dialects=(brought, *BUILT_IN))
    for name in ("a", "b"):
        intake.pod(pod(name, labels={"team": "t", "spark-app-selector": "s", "spark-role": "driver"}))
    assert intake._gangs.gang is not None
    assert [key.name for key in intake._gangs._entries] == ["spark:s"]
