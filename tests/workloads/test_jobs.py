"""Jobs: indexed ones start together, all other ones pod by pod."""

from __future__ import annotations

from typing import Any

import pytest

from phalanx.dialects.workloads.kubernetes import COMPLETION_INDEX
from tests.workloads.played import JOB, Played

OF = "batch/v1/Job/train"
INDEXED: dict[str, Any] = {"completionMode": "Indexed", "parallelism": 4, "completions": 4}


def index(number: int) -> dict[str, Any]:
    return {
        "annotations": {COMPLETION_INDEX: str(number)},
        "labels": {COMPLETION_INDEX: str(number), "batch.kubernetes.io/job-name": "train"},
    }


def created(play: Played, *numbers: int) -> Played:
    for number in numbers:
        play.create(f"train-{number}", of=OF, **index(number))
    return play


def test_the_pods_of_an_indexed_job_start_together_once_all_are_created() -> None:
    play = Played().room(8).owner(JOB, "train", **INDEXED)
    created(play, 0, 1, 2).run()
    assert play.placed() == []
    assert "only 3 of the 4 required pods" in play.why_of("train-0")
    created(play, 3).run()
    assert len(play.placed()) == 4


def test_one_of_two_jobs_that_fit_singly_runs_whole() -> None:
    """Pod by pod each would get half, and both would wait for ever."""
    play = Played().room(6).owner(JOB, "train", **INDEXED).owner(JOB, "other", **INDEXED)
    for number in range(4):
        play.create(f"other-{number}", of="batch/v1/Job/other", **index(number))
        created(play, number)
    play.run()
    assert sorted(len(play.placed(name)) for name in ("train", "other")) == [0, 4]


def test_nothing_starts_until_the_job_is_seen() -> None:
    play = Played().room(8)
    created(play, 0, 1, 2, 3).run()
    assert play.placed() == []
    assert play.gang_of("train-0").problem is not None
    assert "waiting for Job train" in str(play.gang_of("train-0").problem)
    play.owner(JOB, "train", **INDEXED).run()
    assert len(play.placed()) == 4


def test_pods_start_one_by_one_with_a_warning_where_jobs_cannot_be_read() -> None:
    play = Played().room(2)
    created(play, 0, 1, 2, 3).not_readable(JOB).run()
    assert len(play.placed()) == 2
    (warning,) = play.gang_of("train-0").warnings
    assert warning.code == "OwnerNotReadable"


def test_a_work_queue_is_no_gang() -> None:
    play = Played().room(1)
    play.create("w-1", "w-2", of="batch/v1/Job/queue", labels={"batch.kubernetes.io/job-name": "queue"}).run()
    assert play.alone() == ["w-1", "w-2"]
    assert len(play.placed()) == 1
    # An indexed one too, where more indexes than pods are wanted.
    play = Played().room(1).owner(JOB, "train", completionMode="Indexed", parallelism=4, completions=100)
    created(play, 0, 1, 2, 3).run()
    assert len(play.placed()) == 1


def test_replacement_starts_at_once_while_members_run() -> None:
    play = Played().room(4).owner(JOB, "train", **INDEXED)
    created(play, 0, 1, 2, 3).run()
    play.gone("train-2")
    play._take(play.intake.pod_removed("ns", "train-2", "train-2"))
    play.create("train-2b", of=OF, **index(2)).run()
    assert len(play.placed()) == 4


def test_minimum_of_a_partly_finished_job_counts_only_remaining_pods() -> None:
    """Three indexes have succeeded and their pods are gone: the last one must not wait for them."""
    play = Played().room(4).owner(JOB, "train", status={"succeeded": 3}, **INDEXED)
    created(play, 3).run()
    assert play.placed() == ["train-3"]


@pytest.mark.parametrize(
    ("failed", "minimum"),
    [("1", 3), ("0-2", 1), ("0,2", 2), ("1-9", 1), ("", 4), ("x,1-,9", 4), ("0-3", 1), (7, 4), ("1,1", 3)],
)
def test_failed_indexes_of_a_job_count_as_no_expected_members(failed: object, minimum: int) -> None:
    play = Played().room(4).owner(JOB, "train", status={"failedIndexes": failed, "failed": 1}, **INDEXED)
    created(play, 3)
    assert play.gang_of("train-3").min_member == minimum


def test_replacements_of_the_remaining_indexes_start_after_an_index_has_failed() -> None:
    """The whole Job is preempted: its failed index gets no new pod."""
    status = {"failedIndexes": "1", "succeeded": 1}
    play = Played().room(4).owner(JOB, "train", status=status, backoffLimitPerIndex=0, **INDEXED)
    created(play, 2).run()
    assert play.placed() == []
    created(play, 3).run()
    assert play.placed() == ["train-2", "train-3"]


def test_minimum_that_a_job_states_is_at_most_the_number_of_pods_that_it_still_makes() -> None:
    status = {"failedIndexes": "1", "succeeded": 2}
    play = (
        Played().room(4).owner(JOB, "train", annotations={"phalanx.dev/min-count": "3"}, status=status, **INDEXED)
    )
    assert created(play, 3).run().placed() == ["train-3"]


def test_pod_annotations_precede_job_annotations_and_these_the_rule() -> None:
    play = Played().room(8).owner(JOB, "train", annotations={"phalanx.dev/min-count": "2"}, **INDEXED)
    created(play, 0)
    assert play.gang_of("train-0").min_member == 2
    play = Played().owner(JOB, "train", annotations={"phalanx.dev/min-count": "2"}, **INDEXED)
    own = {COMPLETION_INDEX: "0", "phalanx.dev/min-count": "3"}
    play.create("train-0", of=OF, annotations=own)
    assert play.gang_of("train-0").min_member == 3


def test_a_pod_or_its_job_may_stay_out() -> None:
    for key, value in (("phalanx.dev/gang", "false"), ("kai.scheduler/skip-podgrouper", "true")):
        play = Played().room(1).owner(JOB, "train", **INDEXED)
        play.create("train-0", of=OF, annotations={COMPLETION_INDEX: "0", key: value}).run()
        assert (play.alone(), play.placed()) == (["train-0"], ["train-0"])
        play = Played().room(1).owner(JOB, "train", annotations={key: value}, **INDEXED)
        assert created(play, 0).run().placed() == ["train-0"]


def test_a_rule_can_be_switched_off() -> None:
    for word in ("Job", "*"):
        play = Played(ungrouped=frozenset({word})).room(1)
        assert created(play, 0).run().placed() == ["train-0"]
        assert play.intake.workloads.wanted == set()


def test_a_minimum_on_pods_of_any_owner_makes_a_gang_of_that_owners_pods() -> None:
    play = Played().room(4)
    rs = "apps/v1/ReplicaSet/serve"
    play.create("serve-1", of=rs, annotations={"phalanx.dev/min-count": "2"}).run()
    assert play.placed() == []
    play.create("serve-2", of=rs, annotations={"phalanx.dev/min-count": "2"}).run()
    assert len(play.placed()) == 2
    # Its number of replicas limits the minimum.
    assert play.intake.workloads.wanted == {("apps", "replicasets")}


def test_pods_of_deployments_and_stateful_sets_are_on_their_own() -> None:
    play = Played().room(1)
    for kind in ("ReplicaSet", "StatefulSet", "DaemonSet"):
        play.create(f"{kind}-1".lower(), of=f"apps/v1/{kind}/{kind.lower()}")
    assert len(play.alone()) == 3


def test_pods_of_other_schedulers_are_left_alone() -> None:
    play = Played()
    play.create("train-0", of=OF, schedulerName="default-scheduler", **index(0))
    assert play.alone() == ["train-0"]
    assert play.intake.workloads.wanted == set()


def test_pod_with_a_forged_owner_affects_only_itself() -> None:
    """The uid is not that of the Job: such a pod is in another gang, which has no declaration."""
    play = Played().room(8).owner(JOB, "train", **INDEXED)
    forged = "batch/v1/Job/other"
    play.create("forged", of=forged, **index(0))
    created(play, 0, 1, 2, 3).run()
    assert play.placed() == ["train-0", "train-1", "train-2", "train-3"]
    assert play.waiting() == ["forged"]


def test_declaration_stays_valid_for_remaining_pods_of_a_deleted_job() -> None:
    play = Played().room(8).owner(JOB, "train", **INDEXED)
    created(play, 0, 1, 2, 3).run()
    play.no_owner(JOB, "train")
    assert play.gang_of("train-0").problem is None
    assert len(play.intake.owners) == 0
    for number in range(4):
        play._take(play.intake.pod_removed("ns", f"train-{number}", f"train-{number}"))
    assert not play.intake._gangs._sizes


def test_nothing_is_kept_of_jobs_that_are_over() -> None:
    play = Played()
    for number in range(100):
        done = {"conditions": [{"type": "Complete", "status": "True"}], "succeeded": 4}
        play.owner(JOB, f"job-{number}", status=done, **INDEXED)
    assert len(play.intake.owners) == 0
    assert not play.intake._gangs._sizes


def test_a_job_that_cannot_be_read_is_named_and_holds_its_own_pods_only() -> None:
    play = Played().room(8).owner(JOB, "train", completionMode="Indexed", parallelism="many")
    created(play, 0).run()
    assert play.placed() == []
    (warning,) = [each for each in play.intake.drain_warnings() if each.reason == "InvalidWorkload"]
    assert warning.message.startswith('spec.parallelism is "many"')
