"""An object that scheduler, controllers or webhook would refuse is reported as broken, in their words."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from phalanx.reports.migration.findings import FieldFinding, MigrationVerdict, ObjectFinding
from phalanx.reports.migration.steps import summary

from .examined import examined, objected

TASKS = "tasks: [{name: w, replicas: 2, template: {spec: {containers: [{name: c, image: x}]}}}]"


def job(spec: str, kind: str = "Job", api_version: str = "batch.volcano.sh/v1alpha1", status: str = "{}") -> str:
    return f"""
apiVersion: {api_version}
kind: {kind}
metadata: {{name: a, namespace: t}}
spec: {{schedulerName: phalanx, {spec}}}
status: {status}
"""


REFUSED = [
    ("plugins: {nosuchplugin: []}", "spec.plugins.nosuchplugin", "unable to find job plugin: nosuchplugin"),
    ("policies: [{event: Nothing, action: AbortJob}]", "spec.policies[0].event", "invalid policy event"),
    ("policies: [{event: PodFailed, action: Nothing}]", "spec.policies[0].action", "invalid policy action"),
    ("minAvailable: 3", "spec.minAvailable", "should not be greater than total replicas"),
    ('plugins: {svc: ["--bogus"]}', "spec.plugins.svc[0]", "flag provided but not defined: -bogus"),
]


@pytest.mark.parametrize(("part", "field", "words"), REFUSED)
def test_a_job_that_the_controllers_would_not_begin_is_not_honoured(part: str, field: str, words: str) -> None:
    (found,) = examined(job(f"{part}, {TASKS}"))
    told = objected(found)
    assert list(told) == [field]
    assert told[field].verdict is MigrationVerdict.NOT_HONOURED
    assert words in told[field].message


@pytest.mark.parametrize(("part", "field", "words"), REFUSED)
def test_template_or_cron_job_of_a_refused_job_is_not_honoured(part: str, field: str, words: str) -> None:
    template = job(f"{part}, {TASKS}", "JobTemplate", "flow.volcano.sh/v1alpha1")
    cron = job(
        f'schedule: "* * * * *", jobTemplate: {{spec: {{schedulerName: phalanx, {part}, {TASKS}}}}}', "CronJob"
    )
    of_template, of_cron = examined(template, cron)
    assert words in objected(of_template)[field].message
    assert words in objected(of_cron)[field.replace("spec.", "spec.jobTemplate.spec.", 1)].message
    assert {of_template.verdict, of_cron.verdict} == {MigrationVerdict.NOT_HONOURED}


def test_all_mistakes_of_a_job_are_reported_at_once() -> None:
    (found,) = examined(job(f"minAvailable: 3, plugins: {{nosuchplugin: []}}, {TASKS}"))
    assert objected(found).keys() == {"spec.minAvailable", "spec.plugins.nosuchplugin"}


def test_a_good_job_works_with_a_generated_name_too() -> None:
    good = job(f"minAvailable: 2, plugins: {{svc: []}}, {TASKS}")
    found = examined(good, good.replace("{name: a,", "{generateName: a-,"))
    assert [each.verdict for each in found] == [MigrationVerdict.WORKS, MigrationVerdict.WORKS]


def test_a_job_that_was_begun_is_finished_unless_its_plugins_are_unknown_here() -> None:
    running = "{state: {phase: Running}}"
    (kept,) = examined(job(f"minAvailable: 3, {TASKS}", status=running))
    assert kept.verdict is MigrationVerdict.WORKS
    (lost,) = examined(job(f"plugins: {{nosuchplugin: []}}, {TASKS}", status=running))
    assert "failed to get plugin nosuchplugin" in objected(lost)["spec.plugins.nosuchplugin"].message


def test_flow_with_a_missing_dependency_is_not_honoured() -> None:
    flow = "flows: [{name: a, dependsOn: {targets: [b]}}]"
    (found,) = examined(job(flow, "JobFlow", "flow.volcano.sh/v1alpha1").replace("schedulerName: phalanx, ", ""))
    assert found.verdict is MigrationVerdict.NOT_HONOURED
    assert any("vertex is not defined: b" in each.message for each in objected(found).values())


def queue(name: str, parent: str) -> str:
    return f"""
apiVersion: scheduling.volcano.sh/v1beta1
kind: Queue
metadata: {{name: {name}}}
spec: {{parent: {parent}}}
"""


PARENT = "quota.scheduling.koordinator.sh/parent"


def quota(name: str, parent: str) -> str:
    return f"""
apiVersion: scheduling.sigs.k8s.io/v1alpha1
kind: ElasticQuota
metadata: {{name: {name}, namespace: n, labels: {{{PARENT}: {parent}}}}}
spec: {{max: {{cpu: 1}}}}
"""


def test_a_parent_that_is_nowhere_is_named_as_the_scheduler_names_it() -> None:
    of_queue, of_quota = examined(queue("a", "gone"), quota("q", "gone"))
    assert objected(of_queue)["spec.parent"] == FieldFinding(
        "spec.parent",
        MigrationVerdict.CHANGE,
        "Queue a names the parent gone: not found; it and its children accept no new pods; create gone",
    )
    assert (
        "ElasticQuota n/q names the parent gone: not found"
        in objected(of_quota)[f"metadata.labels[{PARENT}]"].message
    )


def test_parents_may_come_later_and_roots_are_always_there() -> None:
    found = examined(
        queue("a", "b"),
        queue("b", "root"),
        queue("c", "default"),
        quota("q", "r"),
        quota("r", "koordinator-root-quota"),
    )
    assert {each.verdict for each in found} == {MigrationVerdict.WORKS}


def test_references_to_kinds_read_in_part_are_not_reported_as_missing() -> None:
    found = examined(queue("a", "gone"), quota("q", "gone"), partial=("Queue", "ElasticQuota"))
    assert {each.verdict for each in found} == {MigrationVerdict.WORKS}


GROUP = """
apiVersion: scheduling.volcano.sh/v1beta1
kind: PodGroup
metadata: {name: g, namespace: n}
spec: {minMember: 2, priorityClassName: high}
"""


def priority_class(name: str) -> str:
    return f"{{apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {{name: {name}}}, value: 5}}"


def test_a_priority_class_is_missing_only_where_classes_could_be_read() -> None:
    (unknown,) = examined(GROUP)
    (there,) = examined(GROUP, priority_class("high"))
    (missing,) = examined(GROUP, priority_class("low"))
    assert (unknown.verdict, there.verdict) == (MigrationVerdict.WORKS, MigrationVerdict.WORKS)
    assert objected(missing)["spec.priorityClassName"].verdict is MigrationVerdict.CHANGE
    assert "which does not exist; create it" in objected(missing)["spec.priorityClassName"].message


def naming(kind: str, spec: str) -> str:
    return job(spec, kind, "flow.volcano.sh/v1alpha1" if kind == "JobTemplate" else "batch.volcano.sh/v1alpha1")


NAMES = f"queue: research, priorityClassName: high, {TASKS}"


@pytest.mark.parametrize(
    ("kind", "spec", "place"),
    [
        ("Job", NAMES, "spec"),
        ("JobTemplate", NAMES, "spec"),
        ("CronJob", f"schedule: '@daily', jobTemplate: {{spec: {{{NAMES}}}}}", "spec.jobTemplate.spec"),
    ],
)
def test_queues_and_classes_that_jobs_name_may_be_missing_too(kind: str, spec: str, place: str) -> None:
    found, *_ = examined(naming(kind, spec), priority_class("low"))
    told = objected(found)
    assert told[f"{place}.queue"] == FieldFinding(
        f"{place}.queue",
        MigrationVerdict.CHANGE,
        f"{kind} t/a ({'flow' if kind == 'JobTemplate' else 'batch'}.volcano.sh): queue research does not exist; "
        "create it: until then no gang that names it starts",
    )
    assert "'high', which does not exist; create it" in told[f"{place}.priorityClassName"].message
    there, *_ = examined(naming(kind, spec), queue("research", "root"), priority_class("high"))
    assert f"{place}.queue" not in objected(there)
    assert f"{place}.priorityClassName" not in objected(there)


@pytest.mark.parametrize("partial", [(), ("Queue",)])
def test_a_queue_is_missing_only_where_queues_could_be_read(partial: tuple[str, ...]) -> None:
    of_group = GROUP.replace("priorityClassName: high", "queue: research")
    found, *_ = examined(of_group, queue("other", "root"), partial=partial)
    assert ("spec.queue" in objected(found)) == (not partial)
    (alone,) = examined(of_group)
    assert "spec.queue" not in objected(alone)
    (usual, *_) = examined(GROUP.replace("priorityClassName: high", "queue: default"), queue("other", "root"))
    assert "spec.queue" not in objected(usual)


def kai_queue(**gpu: Any) -> ObjectFinding:
    spec = {"resources": {"gpu": gpu}}
    head = {"apiVersion": "scheduling.run.ai/v2", "kind": "Queue", "metadata": {"name": "q"}}
    (found,) = examined(yaml.safe_dump({**head, "spec": spec}))
    return found


def test_loss_of_half_a_card_is_reported() -> None:
    found = kai_queue(quota=4.5, limit=8)
    told = objected(found)
    assert "4.5 is rounded down to 4: 0.5 of a GPU is lost" in told["spec.resources.gpu.quota"].message
    assert "lost" not in told["spec.resources.gpu.limit"].message
    assert found.manifests[0]["spec"]["deserved"] == {"nvidia.com/gpu": "4"}


@pytest.mark.parametrize(
    ("weight", "words"),
    [
        (0, "excludes a KAI queue from over-quota capacity"),
        (0.5, "0.5 becomes 1"),
        (2.5, "2.5 becomes 2"),
        (-1, "-1 becomes 1"),
    ],
)
def test_a_weight_that_no_queue_here_can_have_is_not_honoured(weight: float, words: str) -> None:
    told = objected(kai_queue(quota=4, overQuotaWeight=weight))["spec.resources.gpu.overQuotaWeight"]
    assert told.verdict is MigrationVerdict.NOT_HONOURED
    assert words in told.message


def test_mistyped_preemptibility_is_reported() -> None:
    def told(word: str) -> FieldFinding:
        spec = f"spec: {{preemptibility: {word}}}"
        head = "apiVersion: scheduling.run.ai/v2alpha2\nkind: PodGroup\nmetadata: {name: g, namespace: n}\n"
        (found,) = examined(f"{head}{spec}")
        return objected(found)["spec.preemptibility"]

    assert told("non-preemptible").verdict is MigrationVerdict.CHANGE
    mistyped = told("non-preemptable")
    assert mistyped.verdict is MigrationVerdict.NOT_HONOURED
    assert "neither preemptible nor non-preemptible" in mistyped.message


def test_nonstrict_is_not_honoured_in_any_position() -> None:
    prefix = "gang.scheduling.koordinator.sh/"
    pod = f"""
apiVersion: v1
kind: Pod
metadata:
  name: p
  namespace: n
  annotations: {{{prefix}name: g, {prefix}min-available: "2", {prefix}mode: NonStrict}}
spec: {{schedulerName: phalanx, containers: [{{name: c, image: x}}]}}
"""
    (found,) = examined(pod)
    assert objected(found)[f"metadata.annotations[{prefix}mode]"].verdict is MigrationVerdict.NOT_HONOURED


def test_reservation_of_running_pods_resources_works_without_that_field() -> None:
    reservation = """
apiVersion: scheduling.koordinator.sh/v1alpha1
kind: Reservation
metadata: {name: r}
spec:
  preAllocation: true
  owners: [{labelSelector: {matchLabels: {app: web}}}]
  template: {spec: {schedulerName: phalanx, containers: [{name: c, image: x, resources: {requests: {cpu: 1}}}]}}
"""
    (found,) = examined(reservation)
    told = objected(found)["spec.preAllocation"]
    assert (told.verdict, "remove it" in told.message) == (MigrationVerdict.CHANGE, True)


def test_steps_do_not_repeat_the_written_objects() -> None:
    found = examined("apiVersion: scheduling.run.ai/v2\nkind: Queue\nmetadata: {name: q}\nspec: {priority: 1}\n")
    assert summary(found).steps[0].startswith("phalanx migrate --write DIR")
    steps = summary(found, written="moved/").steps
    assert not [step for step in steps if "--write" in step]
    assert any(step.startswith("kubectl apply -f moved/objects/") for step in steps)


def test_volcanos_controller_is_called_by_its_name() -> None:
    steps = summary(examined(GROUP)).steps
    assert any("volcano-controllers" in step for step in steps)
