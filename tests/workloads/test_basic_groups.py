"""Groups with a basic policy that a controller makes for its own pods, as Kubernetes 1.37 does for every Job.

Such a group states no minimum, so it does not cancel the minimum of the pods or of their Job.
"""

from __future__ import annotations

from typing import Any

from phalanx.dialects.kinds import ServedKind
from tests.workloads.played import JOB, Played
from tests.workloads.test_jobs import INDEXED, OF, index

GROUPS = ServedKind("scheduling.k8s.io", "v1beta1", "podgroups", "PodGroup")
IN_GROUP = {"podGroupName": "train-group"}


def basic(play: Played, of: str = OF) -> Played:
    return play.pod_group(GROUPS, "train-group", of=of, schedulingPolicy={"basic": {}})


def member(play: Played, name: str, of: str = OF, **details: Any) -> Played:
    return play.create(name, of=of, schedulingGroup=IN_GROUP, **details)


def indexed(play: Played, *numbers: int, **details: Any) -> Played:
    for number in numbers:
        member(play, f"train-{number}", **index(number), **details)
    return play


class TestIndexedJob:
    def test_pods_start_together_although_the_group_of_the_job_is_basic(self) -> None:
        play = indexed(basic(Played().room(8).owner(JOB, "train", **INDEXED)), 0, 1, 2).run()
        assert play.placed() == []
        indexed(play, 3).run()
        assert len(play.placed()) == 4

    def test_pods_wait_until_the_job_is_read(self) -> None:
        play = indexed(basic(Played().room(8)), 0, 1, 2, 3).run()
        assert play.placed() == []
        assert "waiting for the Job of its pods" in str(play.gang_of("train-0").problem)
        play.owner(JOB, "train", **INDEXED).run()
        assert len(play.placed()) == 4

    def test_pods_start_one_by_one_where_jobs_cannot_be_read(self) -> None:
        play = indexed(basic(Played().room(8)), 0, 1).not_readable(JOB).run()
        assert len(play.placed()) == 2

    def test_minimum_of_a_gang_policy_counts_instead_of_the_job(self) -> None:
        play = Played().room(8).owner(JOB, "train", **INDEXED)
        play.pod_group(GROUPS, "train-group", of=OF, schedulingPolicy={"gang": {"minCount": 2}})
        assert len(indexed(play, 0, 1).run().placed()) == 2

    def test_basic_group_that_a_user_wrote_counts_as_written(self) -> None:
        play = indexed(basic(Played().room(8).owner(JOB, "train", **INDEXED), of=""), 0, 1).run()
        assert len(play.placed()) == 2


class TestStatedMinimum:
    def test_annotation_of_the_pods_counts_for_any_controller(self) -> None:
        of = "apps/v1/ReplicaSet/web"
        play = basic(Played().room(8), of=of)
        member(play, "web-0", of=of, annotations={"phalanx.dev/min-count": "2"}).run()
        assert play.placed() == []
        assert "only 1 of the 2 required pods" in play.why_of("web-0") or "have 1 of 2" in play.why_of("web-0")
        member(play, "web-1", of=of, annotations={"phalanx.dev/min-count": "2"}).run()
        assert len(play.placed()) == 2

    def test_minimum_beside_another_name_on_the_pods_counts(self) -> None:
        labels = {
            "pod-group.scheduling.sigs.k8s.io/name": "train",
            "pod-group.scheduling.sigs.k8s.io/min-available": "2",
        }
        play = member(basic(Played().room(8)), "train-0", labels=labels).run()
        assert play.placed() == []
        assert len(member(play, "train-1", labels=labels).run().placed()) == 2

    def test_opted_out_pods_start_one_by_one(self) -> None:
        play = basic(Played().room(8).owner(JOB, "train", **INDEXED))
        details = index(0)
        details["annotations"] = {**details["annotations"], "phalanx.dev/gang": "false"}
        assert len(member(play, "train-0", **details).run().placed()) == 1
