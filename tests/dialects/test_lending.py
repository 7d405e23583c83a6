"""Users of nodes that are lent for a time, and the eviction of their members (Volcano's tdm)."""

from __future__ import annotations

from typing import Any

import pytest

from phalanx.dialects.gangs.group_spec import GroupSpec
from phalanx.dialects.intake import Intake
from phalanx.dialects.kinds import ServedKind
from phalanx.model.disruption import Portion
from phalanx.model.events import GangUpdated, PodUpdated
from phalanx.model.pod import Pod
from tests.dialects.objects import read_group

from .objects import SIGS, VOLCANO, group, pod

ZONE = "volcano.sh/revocable-zone"
PREEMPTABLE = "volcano.sh/preemptable"
MIN_AVAILABLE = "volcano.sh/jdb-min-available"
MAX_UNAVAILABLE = "volcano.sh/jdb-max-unavailable"
MEMBER = {"scheduling.k8s.io/group-name": "g"}


def read(resource: ServedKind = VOLCANO, **annotations: str) -> GroupSpec:
    keys = {"zone": ZONE, "preemptable": PREEMPTABLE, "least": MIN_AVAILABLE, "most": MAX_UNAVAILABLE}
    (spec,) = read_group(resource, group(annotations={keys[key]: value for key, value in annotations.items()}))
    return spec


def told(door: Intake, name: str = "p", **details: Any) -> list[Pod]:
    return [event.pod for event in door.pod(pod(name, **details)) if isinstance(event, PodUpdated)]


class TestPods:
    @pytest.mark.parametrize(
        ("labels", "annotations", "answer"),
        [
            ({}, {}, None),
            ({}, {PREEMPTABLE: "true"}, True),
            ({PREEMPTABLE: "true"}, {}, True),
            ({PREEMPTABLE: "true"}, {PREEMPTABLE: "false"}, False),
            ({}, {PREEMPTABLE: "perhaps"}, False),
            ({}, {ZONE: "*"}, True),
            ({}, {ZONE: "rz1"}, False),
            ({}, {ZONE: "rz1", PREEMPTABLE: "true"}, False),
            ({}, {ZONE: "*", PREEMPTABLE: "false"}, True),
        ],
    )
    def test_revocable_pod_can_use_lent_nodes(
        self, labels: dict[str, str], annotations: dict[str, str], answer: bool | None
    ) -> None:
        (found,) = told(Intake(["phalanx"]), labels=labels, annotations=annotations)
        assert found.pod_class.revocable is answer

    def test_revocable_and_other_pods_are_two_classes(self) -> None:
        door = Intake(["phalanx"])
        (plain,), (lent,) = told(door, "a"), told(door, "b", annotations={PREEMPTABLE: "true"})
        assert plain.pod_class != lent.pod_class

    def test_pod_with_a_controller_is_recreated(self) -> None:
        (bare,), (owned,) = told(Intake(["phalanx"])), told(Intake(["phalanx"]), owner="job")
        assert (bare.controlled, owned.controlled) == (False, True)


class TestGroups:
    def test_setting_of_a_group_applies_to_its_members(self) -> None:
        assert read(zone="*").revocable
        assert read(preemptable="true").revocable
        assert not read(zone="rz1").revocable
        assert not read().revocable

    def test_only_volcanos_groups_have_lending_settings(self) -> None:
        assert not read(SIGS, zone="*").revocable

    def test_budget_is_a_number_or_a_percentage(self) -> None:
        assert read(least="2").min_available == Portion(2)
        assert read(most="30%").max_unavailable == Portion(30, percent=True)
        assert (read().min_available, read().max_unavailable) == (None, None)

    def test_minimum_available_precedes_maximum_unavailable(self) -> None:
        spec = read(least="2", most="1")
        assert (spec.min_available, spec.max_unavailable) == (Portion(2), None)

    @pytest.mark.parametrize("text", ["", "-1", "101%", "1.5", "some"])
    def test_unreadable_budget_allows_no_eviction(self, text: str) -> None:
        least, most = read(least=text), read(most=text)
        assert (least.min_available, most.max_unavailable) == (Portion(100, percent=True), Portion(0))
        assert [warning.code for warning in (*least.warnings, *most.warnings)] == ["InvalidAnnotation"] * 2

    def test_percentages_are_rounded_up(self) -> None:
        assert Portion(30, percent=True).of(10) == 3
        assert Portion(30, percent=True).of(4) == 2
        assert Portion(5).of(1) == 5


class TestMembers:
    def test_member_without_a_setting_inherits_its_groups(self) -> None:
        door = Intake(["phalanx"])
        door.group(VOLCANO, group("g", annotations={ZONE: "*"}, minMember=1))
        (silent,) = told(door, "a", annotations=MEMBER)
        (unwilling,) = told(door, "b", annotations={**MEMBER, PREEMPTABLE: "false"})
        assert (silent.pod_class.revocable, unwilling.pod_class.revocable) == (True, False)

    def test_member_is_updated_when_the_setting_of_its_group_changes(self) -> None:
        door = Intake(["phalanx"])
        door.group(VOLCANO, group("g", minMember=1))
        told(door, "a", annotations=MEMBER)
        told(door, "b", annotations={**MEMBER, PREEMPTABLE: "false"})
        events = door.group(VOLCANO, group("g", annotations={ZONE: "*"}, minMember=1))
        assert [type(event) for event in events] == [GangUpdated, PodUpdated]
        assert isinstance(events[1], PodUpdated)
        assert (events[1].pod.name, events[1].pod.pod_class.revocable) == ("a", True)
        (_, back) = door.group_removed(VOLCANO, "default", "g")
        assert isinstance(back, PodUpdated)
        assert back.pod.pod_class.revocable is None

    def test_members_of_one_class_stay_in_one_class(self) -> None:
        door = Intake(["phalanx"])
        door.group(VOLCANO, group("g", annotations={ZONE: "*"}, minMember=1))
        (one,), (other,) = told(door, "a", annotations=MEMBER), told(door, "b", annotations=MEMBER)
        assert one.pod_class is other.pod_class
