"""`phalanx what-if` over a capture: starts with time and node, evictions, and delays."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from phalanx.cli.explanation.what_if_lines import answer_lines, free_lines
from phalanx.dialects.times import format_time, parse_time
from phalanx.model.promise_records import StoredReservation
from phalanx.model.text.moments import relative_moment
from phalanx.reports.whatif.answer import AskedStart, Starts, WhatIfAnswer
from phalanx.reports.whatif.changes import QueueChange
from phalanx.reports.whatif.free_room import FreeRoomQuestion, free_room
from phalanx.reports.whatif.question import Question, answer_question
from phalanx.scheduling.policy.loader import load_policy
from phalanx.simulation.cluster import read_cluster
from phalanx.simulation.documents import FileObject, read_documents
from phalanx.simulation.errors import InputError, OptionError
from phalanx.views.promises import PromiseOrigin, PromiseSource

NOW = 1_767_225_600
PLAIN = 'actions: "allocate, backfill"\ntiers: [{plugins: [{name: priority}, {name: gang}, {name: predicates}]}]\n'
EVICTING = PLAIN.replace("backfill", "preempt, backfill")
KEEPING = PLAIN.replace("backfill", "reserve, backfill")
DAY = 86400
Object = dict[str, Any]


def node(name: str, cpu: int = 8, **labels: str) -> Object:
    offered = {"cpu": cpu, "memory": "64Gi", "pods": 110}
    labels = {"kubernetes.io/hostname": name, **labels}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "status": {"allocatable": offered, "capacity": offered},
    }


def pod(
    name: str,
    cpu: int,
    on: str = "",
    limit: int = 0,
    group: str = "",
    began: int = 100,
    owner: str = "",
    **more: Any,
) -> Object:
    """One that has run for `began` seconds where it is `on` a node."""
    annotations = dict(more.pop("annotations", {}))
    if group:
        annotations["scheduling.k8s.io/group-name"] = group
    spec: Object = {
        "schedulerName": "phalanx",
        "terminationGracePeriodSeconds": 10,
        "containers": [{"name": "main", "resources": {"requests": {"cpu": cpu}}}],
        **more,
    }
    if limit:
        spec["activeDeadlineSeconds"] = limit
    status: Object = {"phase": "Pending"}
    if on:
        spec["nodeName"], status = on, {"phase": "Running", "startTime": format_time(NOW - began)}
    owners = [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": owner, "uid": owner, "controller": True}]
    metadata = {
        "name": name,
        "namespace": "a",
        "uid": f"uid-{name}",
        "creationTimestamp": format_time(NOW - began),
        "annotations": annotations,
        "ownerReferences": owners if owner else [],
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, "status": status}


def gang(name: str, pods: int, cpu: int, limit: int = 0, queue: str = "default", **more: Any) -> list[Object]:
    group = {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "PodGroup",
        "metadata": {"name": name, "namespace": "a", "creationTimestamp": format_time(NOW - 100)},
        "spec": {"minMember": pods, "queue": queue},
        "status": {"phase": "Inqueue"},
    }
    return [group, *(pod(f"{name}-{number}", cpu, limit=limit, group=name, **more) for number in range(pods))]


def asked(*documents: Object) -> tuple[FileObject, ...]:
    return tuple(read_documents(json.dumps({"apiVersion": "v1", "kind": "List", "items": documents}), "asked"))


def ask(*there: Object, policy: str = PLAIN, horizon: int = DAY, **question: Any) -> WhatIfAnswer:
    head = {
        "apiVersion": "simulation.phalanx.dev/v1alpha1",
        "kind": "Capture",
        "metadata": {"name": "capture"},
        "spec": {"moment": NOW},
    }
    items = [head, *there]
    cluster = read_cluster(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}), "capture.json")
    question.setdefault("changes", ("something",) if len(question) > ("objects" in question) else ())
    return answer_question(Question(cluster, load_policy(policy), horizon, **question))


def only(answer: WhatIfAnswer) -> AskedStart:
    (start,) = answer.asked
    return start


FULL = (node("n1"), node("n2"), pod("r1", 6, "n1", 1000), pod("r2", 6, "n2", 2000))


def test_job_that_fits_starts_now_and_delays_no_other_job() -> None:
    answer = ask(*FULL, objects=asked(*gang("new", 2, 2)))
    assert (only(answer).name, only(answer).state, only(answer).wait_seconds) == ("a/new", "Now", 0)
    assert sum(room.pods for room in only(answer).nodes) == 2
    assert (answer.evicted, answer.moved) == ([], [])


def test_job_starts_when_the_jobs_in_its_way_have_reached_their_limit_and_terminated() -> None:
    """r1 has run for 100 of 1000 seconds, and has 10 to leave."""
    start = only(ask(*FULL, objects=asked(*gang("new", 2, 4))))
    assert (start.state, start.wait_seconds) == ("Later", 910)
    assert [(each.name, each.end) for each in start.blockers] == [("a/r1", format_time(NOW + 910))]
    assert start.verdict is not None
    assert start.verdict.nodes == {"Insufficient cpu": 2}


def test_estimates_of_users_say_when_it_is_expected() -> None:
    said = {"phalanx.dev/expected-run-time": "5m"}
    there = (node("n1"), pod("r1", 6, "n1", 1000, annotations=said))
    start = only(ask(*there, objects=asked(pod("new", 4))))
    assert (start.start, start.expected) == (format_time(NOW + 910), format_time(NOW + 200))


def test_job_behind_jobs_without_a_known_end_gets_no_start_and_a_reason() -> None:
    answer = ask(node("n1"), pod("r1", 6, "n1"), objects=asked(pod("new", 4)))
    assert only(answer).state == "NotWithinHorizon"
    assert "a/new would not start within 1d" in "\n".join(answer_lines(answer))


def test_victim_is_named_with_its_lost_work_and_its_next_start() -> None:
    there = (node("n1"), pod("low", 6, "n1", 1000, owner="rs"), pod("small", 2, "n1"))
    answer = ask(*there, policy=EVICTING, objects=asked(pod("urgent", 6, limit=500, priority=10)))
    assert (only(answer).state, only(answer).wait_seconds) == ("AfterEvictions", 10)
    (evicted,) = answer.evicted
    assert (evicted.name, evicted.pods, evicted.pod_hours, evicted.lost) == ("a/low", 1, 0.03, False)
    # As soon as the urgent one is killed and has left.
    assert evicted.again == format_time(NOW + 10 + 500 + 10)


def test_victim_without_a_controller_is_lost() -> None:
    answer = ask(node("n1"), pod("low", 8, "n1"), policy=EVICTING, objects=asked(pod("urgent", 8, priority=10)))
    assert [each.lost for each in answer.evicted] == [True]
    assert "never: no controller recreates it" in "\n".join(answer_lines(answer))


def test_delayed_jobs_are_listed_with_their_delay() -> None:
    there = (*FULL, *gang("waits", 2, 4, limit=500))
    answer = ask(*there, objects=asked(*gang("first", 2, 4, limit=500, priority=10)), priority=10)
    assert [(each.name, each.delay_seconds) for each in answer.moved] == [("a/waits", 510)]
    assert (answer.without.later, answer.changed.later) == (1, 1)


def test_more_nodes_help_a_gang_that_waits() -> None:
    there = (*FULL, *gang("waits", 3, 8))
    assert only(ask(*there, gang="a/waits")).state == "NotWithinHorizon"
    answer = ask(*there, gang="a/waits", add_nodes=3, like="n1")
    assert (only(answer).state, [room.node for room in only(answer).nodes]) == (
        "Now",
        ["n1-added-0", "n1-added-1", "n1-added-2"],
    )
    assert (answer.without.never, answer.changed.now) == (1, 1)


def test_removal_of_a_rack_loses_its_pods_and_delays_waiting_jobs() -> None:
    there = (node("n1", rack="r1"), node("n2", rack="r2"), *FULL[2:], *gang("waits", 2, 4, limit=500))
    answer = ask(*there, without_nodes=("rack=r1",))
    assert [(each.name, each.pods, each.again) for each in answer.interrupted] == [("a/r1", 1, "")]
    assert [(each.name, each.delay_seconds) for each in answer.moved] == [("a/waits", 1000)]


def test_a_higher_capability_of_its_queue_lets_it_start() -> None:
    queue = {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "Queue",
        "metadata": {"name": "q"},
        "spec": {"weight": 1, "capability": {"cpu": "2"}},
    }
    policy = PLAIN.replace("{name: predicates}", "{name: predicates}, {name: proportion}")
    there = (node("n1"), queue, *gang("waits", 2, 2, queue="q"))
    start = only(ask(*there, policy=policy, gang="a/waits"))
    assert start.verdict is not None
    assert (start.state, start.verdict.reason) == ("NotWithinHorizon", "QuotaExceeded")
    change = QueueChange("q", capability={"cpu": "4"})
    assert only(ask(*there, policy=policy, gang="a/waits", queue=change)).state == "Now"


@pytest.mark.feature("start-reservations")
def test_another_policy_promises_a_start() -> None:
    there = (*FULL, *gang("waits", 2, 4, limit=100))
    assert only(ask(*there, gang="a/waits")).promised == ""
    assert only(ask(*there, gang="a/waits", other_policy=load_policy(KEEPING))).promised != ""


def test_another_priority_of_a_gang_lets_it_evict() -> None:
    there = (*FULL, *gang("waits", 2, 4))
    assert only(ask(*there, policy=EVICTING, gang="a/waits")).state == "Later"
    assert only(ask(*there, policy=EVICTING, gang="a/waits", priority=5)).state == "AfterEvictions"


@pytest.mark.parametrize(
    ("owner", "names"),
    [
        (
            {"apiVersion": "batch/v1", "kind": "Job", "spec": {"parallelism": 2, "completions": 5}},
            ["a/x-0", "a/x-1"],
        ),
        ({"apiVersion": "apps/v1", "kind": "Deployment", "spec": {"replicas": 2}}, ["a/x-0", "a/x-1"]),
        ({"apiVersion": "apps/v1", "kind": "StatefulSet", "spec": {}}, ["a/x-0"]),
    ],
)
def test_owners_are_asked_about_by_the_pods_that_they_would_have(owner: Object, names: list[str]) -> None:
    template = {"spec": {"containers": [{"name": "main", "resources": {"requests": {"cpu": 1}}}]}}
    document = {
        **owner,
        "metadata": {"name": "x", "namespace": "a"},
        "spec": {**owner["spec"], "template": template},
    }
    answer = ask(node("n1"), objects=asked(document))
    assert [start.name for start in answer.asked] == names
    assert answer.notes == [
        f"{owner['kind']} x is for the scheduler default-scheduler; the answer is as if for phalanx"
    ]


def test_a_volcano_job_is_asked_about_as_its_controller_makes_it() -> None:
    template = {"spec": {"containers": [{"name": "main", "resources": {"requests": {"cpu": 4}}}]}}
    tasks = [{"name": "w", "replicas": 3, "template": template}]
    document = {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "metadata": {"name": "train", "namespace": "a"},
        "spec": {"minAvailable": 2, "schedulerName": "phalanx", "tasks": tasks},
    }
    policy = PLAIN.replace("allocate", "enqueue, allocate")
    start = only(ask(node("n1"), policy=policy, objects=asked(document)))
    # (Two of the three fit, and they are enough.)
    assert (start.pods, start.state, [room.pods for room in start.nodes]) == (3, "Now", [2])


def volcano_job(name: str, replicas: int, cpu: int) -> Object:
    template = {"spec": {"containers": [{"name": "main", "resources": {"requests": {"cpu": cpu}}}]}}
    return {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": "a"},
        "spec": {
            "minAvailable": replicas,
            "schedulerName": "phalanx",
            "tasks": [{"name": "w", "replicas": replicas, "template": template}],
        },
    }


def existing_job(name: str, pods: int, cpu: int, on: str = "") -> list[Object]:
    """Return the PodGroup and the pods of a Volcano Job as its controller has made them."""
    owner = {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "name": name,
        "uid": "1c7f",
        "controller": True,
    }
    more: Any = {"on": on} if on else {}
    made = gang(f"{name}-1c7f", pods, cpu, **more)
    for document in made:
        document["metadata"] |= {
            "ownerReferences": [owner],
            "uid": f"{document['kind']}-{document['metadata']['name']}",
        }
    return made


@pytest.mark.parametrize("pods", [0, 2])
def test_waiting_job_of_the_file_is_replaced_and_counted_once(pods: int) -> None:
    there = (node("n1"), pod("r", 2, on="n1"), *existing_job("train", pods, 4))
    answer = ask(*there, objects=asked(volcano_job("train", 2, 3)))
    assert only(answer).state == "Now"
    assert answer.notes == ["Job a/train exists and waits: the file replaces it"]
    assert (answer.without, answer.changed) == (Starts(0, 0, 0), Starts(0, 0, 0))


def test_pods_of_a_replaced_native_job_and_of_its_replica_set_are_counted_once() -> None:
    template = {"spec": {"schedulerName": "phalanx", "containers": [{"name": "main"}]}}
    for kind, version, spec in (("Job", "batch/v1", {"parallelism": 1}), ("Deployment", "apps/v1", {})):
        between = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "x-1", "uid": "rs", "controller": True}
        owner = {"apiVersion": version, "kind": kind, "name": "x", "uid": "top", "controller": True}
        waiting = pod("x-abc", 8)
        waiting["metadata"]["ownerReferences"] = [between if kind == "Deployment" else owner]
        replica_set = {
            "apiVersion": "apps/v1",
            "kind": "ReplicaSet",
            "metadata": {"name": "x-1", "namespace": "a", "uid": "rs", "ownerReferences": [owner]},
        }
        document = {
            "apiVersion": version,
            "kind": kind,
            "metadata": {"name": "x", "namespace": "a"},
            "spec": {**spec, "template": template},
        }
        answer = ask(node("n1"), waiting, replica_set, objects=asked(document))
        assert answer.notes[0] == f"{kind} a/x exists and waits: the file replaces it"
        assert only(answer).state == "Now"


def test_running_job_of_the_file_is_refused() -> None:
    there = (node("n1"), *existing_job("train", 2, 4, on="n1"))
    with pytest.raises(InputError, match="Job a/train exists already and has 2 pods on nodes; rename it"):
        ask(*there, objects=asked(volcano_job("train", 2, 3)))
    # A job of that name in another namespace is another job.
    other = volcano_job("train", 2, 3)
    other["metadata"]["namespace"] = "b"
    assert ask(*there, objects=asked(other)).notes == []


@pytest.mark.parametrize(
    ("question", "said"),
    [
        ({"gang": "a/none"}, "unknown gang"),
        ({"add_nodes": 1, "like": "n9"}, "--like n9: unknown node; there are n1, n2"),
        ({"add_nodes": 1}, "--add-nodes needs --like NODE"),
        ({"without_nodes": ("n1,n2",)}, "removes all nodes"),
        ({"without_nodes": ("rack=r9",)}, "no node has these labels"),
        ({"queue": QueueChange("none", weight=2)}, "--queue none: unknown queue"),
        ({"queue": QueueChange("default", capability={"cpu": "lots"})}, "cpu=lots"),
        ({"priority": 5}, "--priority needs -f FILE"),
        ({"objects": asked(pod("r1", 1))}, "the pod exists already"),
        ({"objects": asked(pod("x", 1, priorityClassName="none"))}, "unknown PriorityClass none"),
        (
            {"objects": asked({"apiVersion": "ray.io/v1", "kind": "RayCluster", "metadata": {"name": "r"}})},
            "the input has no pods",
        ),
    ],
)
def test_a_question_that_cannot_be_answered_says_why(question: Object, said: str) -> None:
    with pytest.raises(InputError, match=said):
        ask(*FULL, **question)


def test_running_gang_gets_no_start_time() -> None:
    there = (node("n1"), *gang("runs", 2, 1, on="n1"), *gang("waits", 2, 1))
    with pytest.raises(InputError, match="the gang is not waiting: all of its 2 pods are bound or finished"):
        ask(*there, gang="a/runs", changes=())
    assert only(ask(*there, gang="a/waits", changes=())).state == "Now"


@pytest.mark.parametrize("called", ["a/train", "a/train-1c7f2b60", "train"])
def test_group_without_pods_is_refused_as_its_pods_are_unknown(called: str) -> None:
    """Volcano makes those of a job when its group is admitted; until then there is only the group."""
    (group,) = gang("train-1c7f2b60", 0, 1)
    owner = {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "name": "train", "uid": "1c7f2b60"}
    group["metadata"]["ownerReferences"] = [{**owner, "controller": True}]
    with pytest.raises(InputError, match=r"the gang has no pods yet .* use the file of the job with -f"):
        ask(node("n1"), group, gang=called, namespace="a")


def room_of(*there: Object, policy: str = PLAIN, **question: Any) -> list[tuple[int, int, int]]:
    head = {
        "apiVersion": "simulation.phalanx.dev/v1alpha1",
        "kind": "Capture",
        "metadata": {"name": "capture"},
        "spec": {"moment": NOW},
    }
    cluster = read_cluster(json.dumps({"apiVersion": "v1", "kind": "List", "items": [head, *there]}), "c.json")
    found = free_room(FreeRoomQuestion(cluster, load_policy(policy), "a", **question))
    assert list(free_lines(found))
    return [(row.seconds, row.pods, row.nodes) for row in found.rows]


def test_free_room_is_the_size_of_the_largest_gang_that_starts_now() -> None:
    assert room_of(*FULL) == [(0, 4, 2)]
    assert room_of(*FULL, amounts={"cpu": "2"}) == [(0, 2, 2)]
    assert room_of(*FULL, amounts={"cpu": "3"}) == [(0, 0, 0)]


@pytest.mark.feature("start-reservations")
def test_job_that_ends_before_a_promised_start_has_more_room() -> None:
    """The gang that waits is promised n1 from 910 seconds on: until then two CPUs of it are free."""
    there = (*FULL, *gang("waits", 2, 4, limit=100))
    rows = room_of(*there, policy=KEEPING)
    assert [(pods, nodes) for _, pods, nodes in rows] == [(2, 1), (4, 2)]
    assert 0 < rows[1][0] < 910


def with_promise(*there: Object, told: int, **question: Any) -> WhatIfAnswer:
    """Ask about a capture in which gang waits has a promised start."""
    promise = StoredReservation(told, told + 200, told, told, NOW - 50, [], [("a", "waits", "uid-waits")])
    head = {
        "apiVersion": "simulation.phalanx.dev/v1alpha1",
        "kind": "Capture",
        "metadata": {"name": "capture"},
        "spec": {
            "moment": NOW,
            "promises": [msgspec.to_builtins(promise)],
            "promiseOrigin": {"source": "stored", "version": "7", "time": format_time(NOW - 20)},
        },
    }
    cluster = read_cluster(
        json.dumps({"apiVersion": "v1", "kind": "List", "items": [head, *there]}), "capture.json"
    )
    return answer_question(Question(cluster, load_policy(KEEPING), DAY, **question))


@pytest.mark.feature("start-reservations")
def test_answer_begins_with_the_promised_starts_and_says_where_they_would_move() -> None:
    there = (*FULL, *gang("waits", 2, 4, limit=100))
    there[len(FULL)]["metadata"]["uid"] = "uid-waits"
    told = parse_time(only(ask(*there, policy=KEEPING, gang="a/waits")).promised)
    answer = with_promise(*there, told=told, gang="a/waits")
    assert only(answer).promised == format_time(told)
    assert only(answer).verdict is not None
    assert f"t starts no later than {format_time(told)}," in only(answer).verdict.message  # type: ignore[union-attr]
    assert answer.moved_promises == []
    assert answer.origin == PromiseOrigin(PromiseSource.STORED, "7", format_time(NOW - 20))

    urgent = [pod(name, 2, limit=3000, priority=10) for name in ("urgent-0", "urgent-1")]
    answer = with_promise(*there, told=told, objects=asked(*urgent))
    (moved,) = answer.moved_promises
    assert (moved.name, moved.promised, moved.cause) == ("a/waits", format_time(told), "Displaced")
    assert moved.moves_to > moved.promised
    lines = list(answer_lines(answer))
    place = lines.index("Promised starts that would move: 1")
    assert lines[place + 1].split() == ["GANG", "OR", "POD", "FROM", "TO", "CAUSE"]
    assert relative_moment(told, NOW) in lines[place + 2]
    assert lines[place + 2].endswith("Displaced")


def test_answer_about_a_cluster_without_promises_has_no_origin() -> None:
    answer = ask(*FULL, objects=asked(*gang("new", 2, 2)))
    assert (answer.origin, answer.moved_promises) == (None, [])


@pytest.mark.parametrize(
    ("question", "argument", "text"),
    [
        ({"gang": "a/none"}, "gang", "gang a/none: unknown gang; use NAMESPACE/NAME as in `phalanx jobs`"),
        ({"add_nodes": 1}, "add_nodes", "add_nodes needs like NODE"),
        ({"without_nodes": ("n1,n2",)}, "without_nodes", "without_nodes removes all nodes; keep at least one"),
        ({"priority": 5}, "priority", "priority needs -f FILE or gang NAMESPACE/NAME"),
    ],
)
def test_error_about_an_option_names_the_argument_of_the_sdk(question: Object, argument: str, text: str) -> None:
    with pytest.raises(OptionError) as refused:
        ask(*FULL, **question)
    assert (refused.value.argument, refused.value.python_message) == (argument, text)
