"""Updates of members by their group: they reach earlier members too, live and at the start of the process."""

from __future__ import annotations

from collections.abc import Callable
from itertools import permutations
from typing import Any

import pytest

from phalanx.dialects.intake import Intake
from phalanx.dialects.kinds import ServedKind
from phalanx.model.events import ClusterEvent, PodUpdated
from phalanx.model.pod import Pod

from .objects import NATIVE, VOLCANO, VOLCANO_QUEUE, X_K8S, group, pod
from .test_claims import CLAIMS, claim
from .test_pools import to

Told = Callable[[Intake], list[ClusterEvent]]

NAMED = "scheduling.k8s.io/group-name"


def volcano_pod(door: Intake) -> list[ClusterEvent]:
    return door.pod(pod(annotations={NAMED: "g"}))


def volcano_group(door: Intake) -> list[ClusterEvent]:
    return door.group(VOLCANO, group(minMember=1, queue="q"))


def queue_of_some_nodes(door: Intake) -> list[ClusterEvent]:
    return door.account(VOLCANO_QUEUE, group("q", affinity=to("a")))


def queue_of_short_runs(door: Intake) -> list[ClusterEvent]:
    return door.account(VOLCANO_QUEUE, group("q", annotations={"phalanx.dev/max-run-time": "1h"}))


def group_on_lent_nodes(door: Intake) -> list[ClusterEvent]:
    return door.group(VOLCANO, group(minMember=1, annotations={"volcano.sh/revocable-zone": "*"}))


def pod_of_a_team(door: Intake) -> list[ClusterEvent]:
    return door.pod(pod(labels={"scheduling.x-k8s.io/pod-group": "g"}))


def group_of_short_runs(door: Intake) -> list[ClusterEvent]:
    return door.group(X_K8S, group(minMember=1, annotations={"phalanx.dev/max-run-time": "1h"}))


SHARED = [{"name": "gpu", "resourceClaimTemplateName": "t"}]


def pod_with_a_share(door: Intake) -> list[ClusterEvent]:
    made = {"resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": "g-gpu"}]}
    return door.pod(pod(schedulingGroup={"podGroupName": "g"}, resourceClaims=SHARED, status=made))


def group_with_a_claim(door: Intake) -> list[ClusterEvent]:
    gang: dict[str, Any] = {"schedulingPolicy": {"gang": {"minCount": 1}}, "resourceClaims": SHARED}
    return door.group(NATIVE, group(**gang))


def claim_of_nobody(door: Intake) -> list[ClusterEvent]:
    return objects(door, CLAIMS, claim("g-gpu"))


def objects(door: Intake, kind: ServedKind, document: dict[str, Any]) -> list[ClusterEvent]:
    return door.apply(door.enrichers.updated(kind, document))


CASES: dict[str, tuple[Told, ...]] = {
    "the nodes of its queue": (volcano_pod, volcano_group, queue_of_some_nodes),
    "the run time of its queue": (volcano_pod, volcano_group, queue_of_short_runs),
    "lent nodes": (volcano_pod, group_on_lent_nodes),
    "its run time": (pod_of_a_team, group_of_short_runs),
    "a claim that all share": (pod_with_a_share, group_with_a_claim, claim_of_nobody),
}


def shown(facts: tuple[Told, ...], at_start: bool) -> Pod:
    """Return the last published state of the only pod."""
    door = Intake(["phalanx"])
    if at_start:
        door.group_objects.postpone()
        facts = (*facts, Intake.catch_up)
    last = [event.pod for fact in facts for event in fact(door) if isinstance(event, PodUpdated)]
    return last[-1]


@pytest.mark.parametrize("at_start", [False, True], ids=["live", "at the start"])
@pytest.mark.parametrize("facts", CASES.values(), ids=CASES)
def test_member_state_does_not_depend_on_the_order_of_arrival(facts: tuple[Told, ...], at_start: bool) -> None:
    said = shown((*facts[1:], facts[0]), at_start=False)
    assert said != shown(facts[:1], at_start=False)
    for order in permutations(facts):
        assert shown(order, at_start) == said, [fact.__name__ for fact in order]
