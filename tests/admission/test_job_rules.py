"""Refusals of a Job in upstream's words (facts from its admission suite), and its defaults."""

from __future__ import annotations

from typing import Any

import pytest

from phalanx.admission import jobs
from phalanx.admission.context import AdmissionContext
from tests.admission.objects import changed, cluster, job, queue, task, template

CLUSTER = cluster(
    queue("closed", state="Closed"), queue("closing", state="Closing"), queue("parent"), queue("child", "parent")
)
POLICY = {"event": "PodFailed", "action": "RestartJob"}
TIERS = {"highestTierAllowed": 1, "highestTierName": "rack"}
PARTITIONS = {"totalPartitions": 2, "partitionSize": 3}


def refused(document: dict[str, Any], old: dict[str, Any] | None = None) -> str:
    return " ".join(jobs.validate(document, old, CLUSTER))


def with_resources(**resources: Any) -> dict[str, Any]:
    made = template()
    made["spec"]["containers"][0]["resources"] = resources
    return made


@pytest.mark.parametrize(
    "document",
    [
        job(),
        job(task(policies=[POLICY])),
        job(
            policies=[
                {"events": ["PodFailed", "PodEvicted"], "action": "RestartJob"},
                {"exitCode": 3, "action": "AbortJob"},
            ]
        ),
        job(policies=[{"event": "PodPending", "action": "RestartJob", "timeout": "5m0s"}]),
        job(policies=[{"event": "*", "action": "TerminateJob"}]),
        job(volumes=[{"mountPath": "/a", "volumeClaimName": "kept"}, {"mountPath": "/b", "volumeClaim": {}}]),
        job(task("a"), task("b", dependsOn={"name": ["a"]}), task("c", dependsOn={"name": ["a", "b"]})),
        job(task(replicas=6, partitionPolicy=PARTITIONS)),
        job(task(replicas=6, minAvailable=3, partitionPolicy={**PARTITIONS, "minPartitions": 1})),
        job(task(replicas=6, minAvailable=4, partitionPolicy=PARTITIONS)),
        job(networkTopology={"highestTierAllowed": 1}),
        job(networkTopology={"highestTierName": "rack"}),
        job(task("master"), task("worker"), plugins={"mpi": [], "ssh": [], "svc": []}),
        job(task("chief"), plugins={"mpi": ["--master=chief"]}),
        job(task(topologyPolicy="single-numa-node", template=with_resources(limits={"cpu": "2"}))),
        job(task(template=template(hostNetwork=True, securityContext={"runAsUser": 0}))),
        job(queue="child"),
        job(task(replicas=0)),
    ],
)
def test_a_clean_job_is_accepted(document: dict[str, Any]) -> None:
    assert refused(document) == ""


@pytest.mark.parametrize(
    ("document", "words"),
    [
        (job() | {"spec": {"tasks": []}}, "No task specified in job spec"),
        (job(task("same"), task("same")), "duplicated task name same;"),
        (job(task(minAvailable=2)), "'minAvailable' is greater than 'replicas' in task: worker, job: train;"),
        (job(minAvailable=2), "job 'minAvailable' should not be greater than total replicas in tasks;"),
        (job(minAvailable=-1), "spec.minAvailable: Invalid value: -1: should be greater than or equal to 0;"),
        (job(maxRetry=-1), "spec.maxRetry: Invalid value: -1: should be greater than or equal to 0;"),
        (job(ttlSecondsAfterFinished=-1), "spec.ttlSecondsAfterFinished: Invalid value: -1: should be greater"),
        (job(minSuccess=0), "spec.minSuccess: Invalid value: 0: should be greater than or equal to 1;"),
        (
            job(task(replicas=-1)),
            "spec.tasks[0].replicas: Invalid value: -1: should be greater than or equal to 0;",
        ),
        (job(task(minAvailable=-1)), "spec.tasks[0].minAvailable: Invalid value: -1: should be greater"),
        (job(task("Worker_1")), 'spec.tasks[0].name: Invalid value: "Worker_1": a lowercase RFC 1123 label'),
        (job(name="a" * 64), "create job with name " + "a" * 64 + " validate failed"),
        (job(task(replicas=10_000), name="a" * 52), f"create pod with name {'a' * 52}-worker-9999 validate failed"),
        (job(plugins={"big_plugin": []}), "unable to find job plugin: big_plugin;"),
        (job(plugins={"mpi": []}), "The specified mpi master task was not found"),
        (job(task("master"), plugins={"mpi": ["--master=chief"]}), "The specified mpi master task was not found"),
        (job(task("master"), plugins={"mpi": ["--mister=master"]}), "flag provided but not defined: -mister"),
        (job(queue="nowhere"), 'unable to find job queue: queue.scheduling.volcano.sh "nowhere" not found;'),
        (job(queue="closed"), "can only submit job to queue with state `Open`, queue `closed` status is `Closed`;"),
        (
            job(queue="closing"),
            "can only submit job to queue with state `Open`, queue `closing` status is `Closing`;",
        ),
        (job(queue="root"), "can not submit job to root queue;"),
        (job(queue="parent"), "can only submit job to leaf queue, queue `parent` has 1 child queues;"),
        (
            job(networkTopology=TIERS),
            "must not specify 'highestTierAllowed' and 'highestTierName' in networkTopology ",
        ),
        (
            job(task(replicas=6, partitionPolicy={**PARTITIONS, "networkTopology": TIERS})),
            "must not specify 'highestTier",
        ),
        (
            job(task(dependsOn={"name": ["worker"]})),
            "job has dependencies between tasks, but doesn't form a directed ",
        ),
        (
            job(task("a", dependsOn={"name": ["b"]}), task("b", dependsOn={"name": ["a"]})),
            "directed acyclic graph(DAG);",
        ),
        (job(task("a", dependsOn={"name": ["gone"]})), "doesn't form a directed acyclic graph(DAG);"),
        (
            job(task(replicas=5, partitionPolicy=PARTITIONS)),
            "'Replicas' are not equal to TotalPartitions*PartitionSize in task: worker, job: train",
        ),
        (
            job(task(partitionPolicy={"totalPartitions": 0, "partitionSize": 3})),
            "'TotalPartitions' must be greater than 0 in task: worker, job: train",
        ),
        (
            job(task(partitionPolicy={"totalPartitions": 2, "partitionSize": 0})),
            "'PartitionSize' must be greater than 0 in task: worker, job: train",
        ),
        (
            job(task(replicas=6, minAvailable=4, partitionPolicy={**PARTITIONS, "minPartitions": 1})),
            "'MinAvailable' is not equal to MinPartitions*PartitionSize in task: worker, job: train",
        ),
        (
            job(task(topologyPolicy="restricted", template=with_resources(requests={"cpu": "1500m"}))),
            "the cpu request isn't an integer in spec.task[0] container[0].",
        ),
        (job(task(topologyPolicy="best-effort")), "the cpu request isn't an integer in spec.task[0] container[0]."),
        (job(task(topologyPolicy="loose")), 'spec.tasks[0].topologyPolicy: Unsupported value: "loose"'),
        (job(volumes=[{"mountPath": ""}]), "mountPath is required;"),
        (
            job(volumes=[{"mountPath": "/v", "volumeClaimName": "a"}, {"mountPath": "/v", "volumeClaimName": "b"}]),
            "duplicated mountPath: /v;",
        ),
        (job(volumes=[{"mountPath": "/v"}]), "either VolumeClaim or VolumeClaimName must be specified;"),
        (
            job(volumes=[{"mountPath": "/v", "volumeClaimName": "a", "volumeClaim": {}}]),
            "conflict: If you want to use an existing PVC, just specify VolumeClaimName.If you want",
        ),
        (job(volumes=[{"mountPath": "/v", "volumeClaimName": "A_b"}]), "invalid VolumeClaimName A_b : ["),
        (job(task(replicas="many")), "spec.tasks[0].replicas: "),
        (job(task(template={"spec": {}})), "spec.task[0].template.spec.containers: Required value."),
    ],
)
def test_a_job_is_refused_in_words_that_people_know(document: dict[str, Any], words: str) -> None:
    assert words in refused(document)


@pytest.mark.parametrize(
    ("policies", "words"),
    [
        ([{**POLICY, "exitCode": 3}], "must not specify event and exitCode simultaneously"),
        ([{"action": "AbortJob"}], "either event and exitCode should be specified"),
        ([{"event": "Rain", "action": "AbortJob"}], "invalid policy event"),
        ([{"event": "OutOfSync", "action": "AbortJob"}], "invalid policy event"),
        ([{"event": "PodFailed", "action": "Dance"}], "invalid policy action"),
        ([{"event": "PodFailed", "action": "SyncJob"}], "invalid policy action"),
        ([{"exitCode": 1, "action": "Dance"}], "invalid policy action"),
        ([POLICY, POLICY], "duplicate event PodFailed  across different policy"),
        ([POLICY, {"events": ["PodEvicted", "PodFailed"], "action": "AbortJob"}], "duplicate event PodFailed"),
        ([{"exitCode": 0, "action": "AbortJob"}], "0 is not a valid error code"),
        ([{"exitCode": 1, "action": "AbortJob"}] * 2, "duplicate exitCode 1"),
        ([{"event": "*", "action": "AbortJob"}, POLICY], "if there's * here, no other policy should be here"),
        ([POLICY | {"timeout": "soon"}], "is not a duration such as"),
    ],
)
def test_policies_of_jobs_and_tasks_follow_one_set_of_rules(policies: list[Any], words: str) -> None:
    for document in (job(policies=policies), job(task(policies=policies))):
        said = refused(document)
        assert words in said
        assert "valid events are [* PodFailed " in said
        assert "valid actions are [AbortJob " in said


def pod_of(**container: Any) -> dict[str, Any]:
    made = template()
    made["spec"]["containers"][0].update(container)
    return made


@pytest.mark.parametrize(
    ("pod", "words"),
    [
        (
            with_resources(requests={"cpu": "lots"}),
            '.containers[0].resources.requests[cpu]: Invalid value: "lots": quantities must match',
        ),
        (
            with_resources(requests={"memory": "1GiB"}),
            'resources.requests[memory]: Invalid value: "1GiB": quantities must match',
        ),
        (
            with_resources(limits={"cpu": "-1"}),
            'resources.limits[cpu]: Invalid value: "-1": must be greater than or equal to 0',
        ),
        (
            with_resources(requests={"cpu": "6"}, limits={"cpu": "4"}),
            'resources.requests: Invalid value: "6": must be less than or equal to cpu limit of 4',
        ),
        (
            with_resources(requests={"nvidia.com/gpu": 1}, limits={"nvidia.com/gpu": 2}),
            "must be equal to nvidia.com/gpu limit of 2",
        ),
        (
            template(resources={"requests": {"cpu": "6"}, "limits": {"cpu": "4"}}),
            '.spec.resources.requests: Invalid value: "6": must be less than or equal to cpu limit of 4',
        ),
        (with_resources(requests={"cpu": "4"}) | {}, ""),
        (pod_of(name=""), ".containers[0].name: Required value"),
        (pod_of(name="Main"), '.containers[0].name: Invalid value: "Main": a lowercase RFC 1123 label'),
        (pod_of(image=" "), ".containers[0].image: Required value"),
        (
            template(initContainers=[{"name": "main", "image": "a"}]),
            '.initContainers[0].name: Duplicate value: "main"',
        ),
        (
            template(restartPolicy="Sometimes"),
            '.restartPolicy: Unsupported value: "Sometimes": supported values: "Always", "OnFailure", "Never"',
        ),
        (
            pod_of(ports=[{"containerPort": 0}]),
            ".ports[0].containerPort: Invalid value: 0: must be between 1 and 65535, inclusive",
        ),
        (
            pod_of(ports=[{"containerPort": 1, "hostPort": 80}, {"containerPort": 2, "hostPort": 80}]),
            '.ports[1].hostPort: Duplicate value: "/TCP/80"',
        ),
        (
            pod_of(ports=[{"name": "a", "containerPort": 1}, {"name": "a", "containerPort": 2}]),
            '.ports[1].name: Duplicate value: "a"',
        ),
        (pod_of(volumeMounts=[{"name": "gone", "mountPath": "/a"}]), '.volumeMounts[0].name: Not found: "gone"'),
        (template(volumes=[{"name": "a"}, {"name": "a"}]), '.volumes[1].name: Duplicate value: "a"'),
    ],
)
def test_a_pod_template_is_checked_as_far_as_it_is_cheap(pod: dict[str, Any], words: str) -> None:
    said = refused(job(task(template=pod)))
    assert words in said
    assert said.startswith("spec.task[0].template.spec") is bool(words)


def test_a_whole_pod_asks_for_no_less_than_its_containers() -> None:
    pod = with_resources(requests={"cpu": "4"})
    pod["spec"]["resources"] = {"requests": {"cpu": "2"}}
    assert (
        'spec.task[0].template.spec.resources.requests[cpu]: Invalid value: "2": '
        "must be greater than or equal to aggregate container requests of 4" in refused(job(task(template=pod)))
    )


def test_ssh_plugin_is_refused_only_where_it_is_disabled() -> None:
    alone: dict[str, Any] = {"ssh": []}
    for plugins in (alone, {"mpi": ["--master=worker"], "ssh": [], "svc": []}):
        document = job(plugins=plugins)
        assert jobs.validate(document, None, cluster()) == []
        (refusal,) = jobs.validate(document, None, cluster(ssh=False))
        assert "job plugin ssh is disabled in this cluster" in refusal
    assert jobs.validate(job(plugins={"svc": []}), None, cluster(ssh=False)) == []


def test_several_refusals_are_one_denial() -> None:
    said = refused(job(task(minAvailable=2), plugins={"big_plugin": []}, queue="root"))
    assert said == (
        "'minAvailable' is greater than 'replicas' in task: worker, job: train; "
        "unable to find job plugin: big_plugin; can not submit job to root queue;"
    )


def test_queues_are_nobodys_business_where_they_are_not_known() -> None:
    assert jobs.validate(job(queue="nowhere"), None, AdmissionContext()) == []


# --- updates

STORED = job(
    task(replicas=2, minAvailable=2),
    minAvailable=2,
    volumes=[{"mountPath": "/v", "volumeClaim": {"accessModes": []}}],
)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("spec.tasks.0.replicas", 3),
        ("spec.tasks.0.minAvailable", 1),
        ("spec.minAvailable", 1),
        ("spec.priorityClassName", "high"),
        ("metadata.labels", {"a": "b"}),
        ("spec.volumes.0.volumeClaimName", "made-for-it"),
        ("spec.tasks.0.template.spec.containers.0.resources", {}),
        ("spec.tasks.0.policies", None),
    ],
)
def test_job_update_may_change_only_mutable_fields(path: str, value: object) -> None:
    assert refused(changed(STORED, path, value), STORED) == ""


FIELDS = (
    "job updates may not change fields other than `minAvailable`, `tasks[*].replicas under spec` "
    "and `PriorityClassName`"
)


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        ("spec.queue", "child", FIELDS),
        ("spec.maxRetry", 5, FIELDS),
        ("spec.tasks.0.name", "other", FIELDS),
        ("spec.tasks.0.template.spec.containers.0.image", "other", FIELDS),
        ("spec.tasks.0.template.spec.terminationGracePeriodSeconds", 0, FIELDS),
        ("spec.tasks.0.template.spec.hostNetwork", True, FIELDS),
        ("spec.tasks", [*STORED["spec"]["tasks"], task("more")], "job updates may not add or remove tasks"),
        ("spec.tasks", [], "job updates may not add or remove tasks"),
        ("spec.tasks.0.replicas", 1, "'minAvailable' must be <= 'replicas' in task: worker"),
        ("spec.tasks.0.replicas", -1, "'replicas' must be >= 0 in task: worker"),
        ("spec.tasks.0.minAvailable", -1, "'minAvailable' must be >= 0 in task: worker"),
        ("spec.minAvailable", 5, "job 'minAvailable' must not be greater than total replicas"),
        ("spec.minAvailable", -5, "job 'minAvailable' must be >= 0"),
        ("spec.networkTopology", TIERS, "must not specify 'highestTierAllowed' and 'highestTierName'"),
    ],
)
def test_nothing_else_of_a_job_may_change(path: str, value: object, words: str) -> None:
    if path == "spec.tasks":
        document = changed(STORED, "spec.minAvailable", 0) if not value else STORED
        assert words in refused(changed(document, path, value), STORED)
    else:
        assert words in refused(changed(STORED, path, value), STORED)


def test_amounts_are_compared_by_value() -> None:
    before = job(task(template=with_resources(requests={"cpu": "1"})))
    after = job(task(template=with_resources(requests={"cpu": "1000m"})))
    more = job(task(template=with_resources(requests={"cpu": "1001m"})))
    assert (
        refused(changed(after, "spec.minAvailable", 1) if "minAvailable" in after["spec"] else after, before) == ""
    )
    assert FIELDS in refused(more, before)


def test_job_admitted_under_older_rules_can_be_finished() -> None:
    odd = job(plugins={"retired": []}, queue="gone", name="a" * 70)
    deleted = changed(odd, "metadata.finalizers", [])
    assert refused(odd) != ""
    assert refused(deleted, odd) == ""


# --- defaults


def filled(document: dict[str, Any]) -> dict[str, Any]:
    """With a second run that finds nothing to fill in."""
    built = jobs.defaults(document, AdmissionContext(scheduler_names=("phalanx", "volcano")))
    assert jobs.defaults(built.document, AdmissionContext()).patch == []
    spec: dict[str, Any] = built.document["spec"]
    return spec


def test_job_gets_the_defaults_of_upstream() -> None:
    bare = {
        "metadata": {"name": "j"},
        "spec": {
            "tasks": [
                {"replicas": 2, "template": template()},
                {"replicas": 3, "minAvailable": 1, "template": template()},
            ]
        },
    }
    spec = filled(bare)
    assert (spec["queue"], spec["schedulerName"], spec["maxRetry"], spec["minAvailable"]) == (
        "default",
        "phalanx",
        3,
        3,
    )
    assert [entry["name"] for entry in spec["tasks"]] == ["default0", "default1"]
    assert [entry["minAvailable"] for entry in spec["tasks"]] == [2, 1]
    assert [entry["maxRetry"] for entry in spec["tasks"]] == [3, 3]


def test_stated_fields_are_not_defaulted() -> None:
    stated = job(task(minAvailable=1, maxRetry=7), queue="mine", schedulerName="other", maxRetry=9, minAvailable=1)
    assert filled(stated) == stated["spec"]


def test_pods_of_the_host_network_find_the_cluster_s_names() -> None:
    spec = filled(job(task(template=template(hostNetwork=True))))
    assert spec["tasks"][0]["template"]["spec"]["dnsPolicy"] == "ClusterFirstWithHostNet"


def test_the_minimum_of_partitions_is_whole_partitions() -> None:
    spec = filled(job(task(replicas=6, partitionPolicy={**PARTITIONS, "minPartitions": 1})))
    assert spec["minAvailable"] == spec["tasks"][0]["minAvailable"] == 3
    assert filled(job(task(replicas=6, partitionPolicy=PARTITIONS)))["minAvailable"] == 6


@pytest.mark.parametrize(
    ("plugins", "then"),
    [
        ({"tensorflow": []}, {"tensorflow", "svc"}),
        ({"pytorch": []}, {"pytorch", "svc"}),
        ({"ray": []}, {"ray", "svc"}),
        ({"mpi": []}, {"mpi", "svc", "ssh"}),
        ({"env": []}, {"env"}),
    ],
)
def test_a_framework_gets_the_plugins_that_it_needs(plugins: dict[str, list[str]], then: set[str]) -> None:
    assert set(filled(job(plugins=plugins))["plugins"]) == then


def test_arguments_of_plugins_are_left_alone() -> None:
    plugins = {"mpi": ["--port=22"], "ssh": ["--ssh-key-file-path=/root"], "svc": ["--publish-not-ready-addresses"]}
    assert filled(job(plugins=plugins))["plugins"] == plugins


def test_fields_that_are_not_known_stay() -> None:
    document = job(task(invented={"x": 1}))
    assert filled(document)["tasks"][0]["invented"] == {"x": 1}
    assert jobs.defaults({"metadata": {}, "spec": {"tasks": ["odd", {"replicas": "x"}]}}, AdmissionContext()).patch


def test_a_plugin_s_arguments_are_a_list_of_words() -> None:
    assert "spec.plugins.mpi: " in refused(job(task("master"), plugins={"mpi": "--master=master"}))
    assert "spec.tasks: " in refused(changed(job(), "spec.tasks", "worker"))


@pytest.mark.parametrize("name", ["7b-train", "llama.v2", "Train"])
@pytest.mark.parametrize("plugin", ["svc", "pytorch", "mpi"])
def test_job_whose_name_no_service_can_have_is_refused_with_plugins_that_make_one(name: str, plugin: str) -> None:
    document = job(task("master"), task("worker"), plugins={plugin: []})
    document["metadata"]["name"] = name
    text = refused(document)
    assert f"create service with name {name} validate failed [a DNS-1035 label must consist of" in text
    assert "rename the job" in text


@pytest.mark.parametrize("name", ["7b-train", "llama.v2"])
def test_job_without_a_service_can_have_a_name_that_no_service_can_have(name: str) -> None:
    document = job(task())
    document["metadata"]["name"] = name
    assert refused(document) == ""
