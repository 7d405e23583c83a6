"""Events about protection annotations that have no effect."""

from __future__ import annotations

from phalanx.dialects.warnings import ObjectRef
from phalanx.model.account import SelfProtection
from phalanx.model.gang import GroupRef
from phalanx.status.warnings.ignored_protection import ignored_protection
from tests.scheduling.scenario import Scenario

SOURCE = GroupRef("scheduling.x-k8s.io", "v1alpha1", "PodGroup", "podgroups", "ns", "train", "u")


def told(
    scenario: Scenario, default: SelfProtection = SelfProtection.GUARANTEED
) -> list[tuple[ObjectRef, str, str]]:
    notices = ignored_protection(scenario.state, scenario.cycle().binds, default)
    return [(notice.about, notice.reason, notice.message) for notice in notices]


def test_pod_with_ignored_protection_gets_one_event_when_it_is_bound() -> None:
    scenario = Scenario().node("n").queue("default", self_protection=SelfProtection.NONE)
    scenario.pod("p", cpu=1, more={"preemptable": False, "cooldown": 60}).pod("silent", cpu=1)
    assert told(scenario) == [
        (
            ObjectRef("v1", "Pod", "ns", "p", "p"),
            "SelfProtectionIgnored",
            "volcano.sh/preemptable and volcano.sh/cooldown-time have no effect on pod ns/p: queue default lets no "
            "pod protect itself",
        )
    ]
    scenario.confirm()
    assert told(scenario) == []


def test_group_with_ignored_protection_gets_one_event_for_all_members() -> None:
    scenario = Scenario().node("n").job("train", 3, cpu=1).gang("train", 3, preemptable=False, source=SOURCE)
    assert told(scenario, SelfProtection.NONE) == [
        (
            ObjectRef("scheduling.x-k8s.io/v1alpha1", "PodGroup", "ns", "train", "u"),
            "SelfProtectionIgnored",
            "volcano.sh/preemptable has no effect on the members of gang ns/train: the policy lets no pod protect "
            "itself",
        )
    ]


def test_pod_with_limited_protection_gets_no_event() -> None:
    scenario = Scenario().node("n").pod("p", cpu=1, more={"preemptable": False})
    assert told(scenario) == []
