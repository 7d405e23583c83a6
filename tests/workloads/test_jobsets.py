"""JobSets: a stage starts together, and nothing waits for pods that the next stage brings."""

from __future__ import annotations

from typing import Any

from phalanx.dialects.workloads.kubernetes import COMPLETION_INDEX
from phalanx.model.pod import PodPhase
from tests.workloads.played import JOBSET, Played

KEY = "jobset.sigs.k8s.io/"
EXCLUSIVE = "alpha.jobset.sigs.k8s.io/exclusive-topology"
NODE_SELECTOR = "alpha.jobset.sigs.k8s.io/node-selector"


def part(name: str, pods: int, jobs: int = 1, after: str = "", status: str = "Ready") -> dict[str, Any]:
    spec = {"parallelism": pods, "completions": pods, "completionMode": "Indexed"}
    depends = {"dependsOn": [{"name": after, "status": status}]} if after else {}
    return {"name": name, "replicas": jobs, "template": {"spec": spec}, **depends}


def jobset(play: Played, *parts: dict[str, Any], **more: Any) -> Played:
    return play.owner(JOBSET, "js", replicatedJobs=list(parts), **more)


def created(play: Played, name: str, pods: int, job: int = 0, attempt: int = 0, **extra: str) -> Played:
    """The pods of one Job of a replicatedJob, as the JobSet's and the Job's controllers label them."""
    for number in range(pods):
        one(play, name, number, job, attempt, **extra)
    return play


def one(play: Played, name: str, number: int, job: int = 0, attempt: int = 0, **extra: str) -> Played:
    pod = f"js-{name}-{job}-{number}" + (f"-{attempt}" if attempt else "")
    return play.create(
        pod, of=f"batch/v1/Job/js-{name}-{job}-{attempt}", **words_of(name, number, job, attempt, **extra)
    )


def words_of(name: str, number: int, job: int = 0, attempt: int = 0, **extra: str) -> dict[str, Any]:
    words = {
        f"{KEY}jobset-name": "js",
        f"{KEY}jobset-uid": "js",
        f"{KEY}replicatedjob-name": name,
        f"{KEY}job-index": str(job),
        f"{KEY}restart-attempt": str(attempt),
    }
    own = {{"exclusive": EXCLUSIVE, "selector": NODE_SELECTOR}[key]: text for key, text in extra.items()}
    return {"labels": words, "annotations": {COMPLETION_INDEX: str(number), **words, **own}}


def test_pods_that_exist_at_the_same_time_start_together() -> None:
    play = jobset(Played().room(16), part("driver", 1), part("workers", 2, jobs=2))
    created(play, "driver", 1)
    created(play, "workers", 2, job=0).run()
    assert play.placed() == []
    created(play, "workers", 2, job=1).run()
    assert len(play.placed()) == 5


def test_half_a_job_set_takes_no_room() -> None:
    play = jobset(Played().room(4), part("driver", 1), part("workers", 2, jobs=2))
    created(play, "driver", 1)
    created(play, "workers", 2, job=0)
    created(play, "workers", 2, job=1).run()
    assert play.placed() == []


def test_a_stage_that_depends_on_another_is_not_waited_for() -> None:
    """As in Kubeflow's Trainer: data first, then the nodes. A minimum of all three is never reached."""
    play = jobset(Played().room(2), part("data", 1), part("node", 2, after="data", status="Complete"))
    created(play, "data", 1).run()
    assert play.placed() == ["js-data-0-0"]
    assert play.gang_of("js-data-0-0").later == "2 pods of node are created only after data"
    play.finishes("js-data-0-0")
    one(play, "node", 0).run()
    assert play.waiting() == ["js-node-0-0"]
    one(play, "node", 1).run()
    assert len(play.placed("js-node")) == 2


def test_a_stage_behind_one_that_keeps_running_starts_as_a_whole() -> None:
    play = jobset(Played().room(8), part("driver", 1), part("workers", 3, after="driver"))
    created(play, "driver", 1).run()
    one(play, "workers", 0)
    one(play, "workers", 1).run()
    assert play.placed() == ["js-driver-0-0"]
    one(play, "workers", 2).run()
    assert len(play.placed()) == 4


def test_later_stages_are_mentioned_where_members_are_missing() -> None:
    play = jobset(Played().room(8), part("data", 2), part("node", 2, after="data"))
    one(play, "data", 0).run()
    assert play.why_of("js-data-0-0").endswith(" exist; not counted: 2 pods of node are created only after data")


def test_jobs_in_order_are_stages() -> None:
    parts = (part("first", 2), part("second", 2))
    play = jobset(Played().room(8), *parts, startupPolicy={"startupPolicyOrder": "InOrder"})
    created(play, "first", 2).run()
    assert len(play.placed()) == 2


def test_with_exclusive_topology_the_first_pod_of_each_job_comes_first() -> None:
    """The JobSet's webhook refuses the other pods until the first has a node."""
    play = jobset(Played().room(8), part("workers", 3, jobs=2), annotations={EXCLUSIVE: "rack"})
    one(play, "workers", 0, job=0, exclusive="rack").run()
    assert play.placed() == []
    one(play, "workers", 0, job=1, exclusive="rack").run()
    assert len(play.placed()) == 2
    one(play, "workers", 1, job=0, exclusive="rack").run()
    assert len(play.placed()) == 2
    one(play, "workers", 2, job=0, exclusive="rack").run()
    assert len(play.placed()) == 4


def test_with_node_selectors_all_pods_come_at_once() -> None:
    annotations = {EXCLUSIVE: "rack", NODE_SELECTOR: "true"}
    play = jobset(Played().room(8), part("workers", 3), annotations=annotations)
    one(play, "workers", 0, exclusive="rack", selector="true").run()
    assert play.placed() == []
    for number in (1, 2):
        one(play, "workers", number, exclusive="rack", selector="true")
    assert len(play.run().placed()) == 3


def test_a_restart_is_a_gang_of_its_own_while_old_pods_terminate() -> None:
    play = jobset(Played().room(8), part("driver", 1), part("workers", 2))
    created(play, "driver", 1)
    created(play, "workers", 2).run()
    assert len(play.placed()) == 3
    created(play, "driver", 1, attempt=1)
    one(play, "workers", 0, attempt=1).run()
    assert len(play.placed()) == 3
    one(play, "workers", 1, attempt=1).run()
    assert len(play.placed()) == 6


def test_jobs_that_have_succeeded_are_not_waited_for() -> None:
    """The driver comes again when the workers are done and their pods are gone."""
    done = {"replicatedJobsStatus": [{"name": "workers", "succeeded": 1, "ready": 0, "failed": 0, "active": 0}]}
    play = jobset(Played().room(4), part("driver", 1), part("workers", 2), status=done)
    created(play, "driver", 1).run()
    assert play.placed() == ["js-driver-0-0"]


def test_a_job_set_may_stay_out() -> None:
    play = jobset(
        Played().room(4), part("driver", 1), part("workers", 2), annotations={"phalanx.dev/gang": "false"}
    )
    one(play, "workers", 0).run()
    assert play.placed() == ["js-workers-0-0"]


def test_a_driver_that_is_created_again_starts_beside_its_running_workers_and_the_other_way_round() -> None:
    play = jobset(Played().room(8), part("driver", 1), part("workers", 2))
    created(play, "driver", 1)
    created(play, "workers", 2).run()
    play.finishes("js-driver-0-0", phase=PodPhase.FAILED)
    play.create("driver-2", of="batch/v1/Job/js-driver-0-0", **words_of("driver", 0)).run()
    assert "driver-2" in play.placed()
    play.finishes("js-workers-0-1", phase=PodPhase.FAILED)
    play.create("workers-2", of="batch/v1/Job/js-workers-0-0", **words_of("workers", 1)).run()
    assert "workers-2" in play.placed()


def test_a_worker_is_replaced_when_the_driver_is_done_as_soon_as_the_job_set_says_so() -> None:
    play = jobset(Played().room(8), part("driver", 1), part("workers", 2))
    created(play, "driver", 1)
    created(play, "workers", 2).run()
    play.finishes("js-driver-0-0").finishes("js-workers-0-1", phase=PodPhase.FAILED)
    play.create("workers-2", of="batch/v1/Job/js-workers-0-0", **words_of("workers", 1)).run()
    done = {"replicatedJobsStatus": [{"name": "driver", "succeeded": 1}]}
    jobset(play, part("driver", 1), part("workers", 2), status=done).run()
    assert "workers-2" in play.placed()


def test_all_of_a_stage_come_again_after_a_part_of_it_is_done() -> None:
    """Everything was evicted but the driver, which had succeeded: the workers need not wait for it."""
    play = jobset(Played().room(8), part("driver", 1), part("workers", 2))
    created(play, "driver", 1)
    created(play, "workers", 2).run()
    play.finishes("js-driver-0-0").gone("js-workers-0-0", "js-workers-0-1")
    done = {"replicatedJobsStatus": [{"name": "driver", "succeeded": 1}]}
    jobset(play, part("driver", 1), part("workers", 2), status=done)
    one(play, "workers", 0).run()
    assert play.waiting() == ["js-workers-0-0"]
    one(play, "workers", 1).run()
    assert play.placed("js-workers") == ["js-workers-0-0", "js-workers-0-1"]
