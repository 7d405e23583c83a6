"""Pods of ReplicaSets and StatefulSets that state a minimum: it is at most the number of pods wanted at present."""

from __future__ import annotations

from typing import Any

import pytest

from phalanx.dialects.kinds import ServedKind
from tests.workloads.played import Played

REPLICA_SETS = ServedKind("apps", "v1", "replicasets", "ReplicaSet")
STATEFUL_SETS = ServedKind("apps", "v1", "statefulsets", "StatefulSet")
MINIMA = ["phalanx.dev/min-count", "scheduling.volcano.sh/group-min-member"]


def member(play: Played, name: str, key: str, of: str = "apps/v1/ReplicaSet/new") -> Played:
    return play.create(name, of=of, annotations={key: "2"})


@pytest.mark.parametrize("key", MINIMA)
class TestReplicaSet:
    def test_first_pod_of_a_rolling_update_starts_alone(self, key: str) -> None:
        play = member(Played().room(4).owner(REPLICA_SETS, "new", replicas=1), "new-0", key).run()
        assert play.placed() == ["new-0"]
        member(play.owner(REPLICA_SETS, "new", replicas=2), "new-1", key).run()
        assert play.placed() == ["new-0", "new-1"]

    def test_first_pods_of_a_new_deployment_start_together(self, key: str) -> None:
        play = member(Played().room(4).owner(REPLICA_SETS, "new", replicas=2), "new-0", key).run()
        assert play.placed() == []
        assert member(play, "new-1", key).run().placed() == ["new-0", "new-1"]

    def test_pod_waits_for_others_until_its_controller_is_read(self, key: str) -> None:
        play = member(Played().room(4), "new-0", key).run()
        assert play.placed() == []
        assert play.owner(REPLICA_SETS, "new", replicas=1).run().placed() == ["new-0"]


@pytest.mark.parametrize("key", MINIMA)
class TestStatefulSet:
    @pytest.mark.parametrize(("policy", "started"), [("OrderedReady", ["db-0"]), ("Parallel", [])])
    def test_first_pod_starts_alone_only_if_the_next_is_created_after_it(
        self, key: str, policy: str, started: list[str]
    ) -> None:
        fields: dict[str, Any] = {"replicas": 2, "podManagementPolicy": policy}
        play = Played().room(4).owner(STATEFUL_SETS, "db", **fields)
        assert member(play, "db-0", key, "apps/v1/StatefulSet/db").run().placed() == started
