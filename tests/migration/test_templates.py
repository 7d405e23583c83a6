"""Templates of pods are judged as the pods that come of them, in objects of every kind."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from phalanx.reports.migration.findings import FieldFinding, MigrationVerdict, ObjectFinding
from phalanx.reports.migration.steps import summary

from .examined import examined, objected_in


def told(found: ObjectFinding) -> dict[str, FieldFinding]:
    return {each.field: each for each in found.fields}


TASK = """{name: w, replicas: 1, template:
  {metadata: {annotations: {KEYS}}, spec: {NAME containers: [{name: c, image: x}]}}}"""


def task(name: str = "", keys: str = "") -> str:
    return TASK.replace("NAME", f"schedulerName: {name}," if name else "").replace("KEYS", keys)


def job(spec: str) -> str:
    return f"""
apiVersion: batch.volcano.sh/v1alpha1
kind: Job
metadata: {{name: a, namespace: t}}
spec: {{{spec}}}
"""


def cron_job(spec: str) -> str:
    return f"""
apiVersion: batch.volcano.sh/v1alpha1
kind: CronJob
metadata: {{name: a, namespace: t}}
spec: {{schedule: "0 0 * * *", jobTemplate: {{spec: {{{spec}}}}}}}
"""


def job_template(spec: str) -> str:
    return f"""
apiVersion: flow.volcano.sh/v1alpha1
kind: JobTemplate
metadata: {{name: a, namespace: t}}
spec: {{{spec}}}
"""


def job_flow(spec: str) -> str:
    return f"""
apiVersion: flow.volcano.sh/v1alpha1
kind: JobFlow
metadata: {{name: a, namespace: t}}
spec: {{flows: [{{name: b, patch: {{jobSpec: {{{spec}}}}}}}]}}
"""


MAKERS = [
    (job, "spec"),
    (cron_job, "spec.jobTemplate.spec"),
    (job_template, "spec"),
    (job_flow, "spec.flows[0].patch.jobSpec"),
]


@pytest.mark.parametrize(("make", "place"), MAKERS, ids=["Job", "CronJob", "JobTemplate", "JobFlow"])
def test_task_with_another_scheduler_than_its_job_is_reported(make: Any, place: str) -> None:
    found = objected_in(make(f"schedulerName: phalanx, tasks: [{task('volcano')}]"))
    (field,) = found
    assert field == f"{place}.tasks[0].template.spec.schedulerName"
    assert found[field].verdict is MigrationVerdict.CHANGE
    assert "write phalanx" in found[field].message


@pytest.mark.parametrize(("make", "place"), MAKERS, ids=["Job", "CronJob", "JobTemplate", "JobFlow"])
def test_job_and_its_tasks_are_reported_separately(make: Any, place: str) -> None:
    found = objected_in(
        make(f"schedulerName: volcano, tasks: [{task('volcano')}, {task().replace('name: w', 'name: v')}]")
    )
    assert set(found) == {f"{place}.schedulerName", f"{place}.tasks[0].template.spec.schedulerName"}


def test_the_scheduler_that_a_task_names_is_served_from_the_first_step_on() -> None:
    found = examined(job(f"schedulerName: phalanx, tasks: [{task('volcano')}]"))
    assert "phalanx scheduler --scheduler-name phalanx --scheduler-name volcano" in summary(found).steps


@pytest.mark.parametrize("key", ["volcano.sh/qos-level", "scheduling.koordinator.sh/device-joint-allocate"])
def test_template_has_equal_findings_in_a_job_a_deployment_and_a_pod(key: str) -> None:
    annotations = f'annotations: {{{key}: "x"}}'
    spec = "spec: {schedulerName: phalanx, containers: [{name: c}]}"
    texts = {
        "spec.tasks[0].template.": job(f"schedulerName: phalanx, tasks: [{task(keys=f'{key}: x')}]"),
        "spec.template.": f"""
apiVersion: apps/v1
kind: Deployment
metadata: {{name: a}}
spec: {{template: {{metadata: {{{annotations}}}, {spec}}}}}
""",
        "": f"apiVersion: v1\nkind: Pod\nmetadata: {{name: a, {annotations}}}\n{spec}\n",
    }
    said = {objected_in(text)[f"{place}metadata.annotations[{key}]"].verdict for place, text in texts.items()}
    assert said == {MigrationVerdict.NOT_HONOURED}


DEVICE_KEYS = ["device-joint-allocate", "device-allocate-hint", "gpu-partition-spec"]


@pytest.mark.parametrize("key", DEVICE_KEYS)
def test_joint_device_allocation_of_koordinator_pods_is_not_honoured(key: str) -> None:
    field = f"metadata.annotations[scheduling.koordinator.sh/{key}]"
    said = objected_in(f"""
apiVersion: v1
kind: Pod
metadata: {{name: a, annotations: {{scheduling.koordinator.sh/{key}: "{{}}"}}}}
spec: {{schedulerName: phalanx, containers: [{{name: c}}]}}
""")[field]
    assert said.verdict is MigrationVerdict.NOT_HONOURED
    assert "stays pending" in said.message
    assert "without the plugin it is ignored" in said.message


def test_daemon_set_of_an_old_scheduler_is_reported_and_patched() -> None:
    (found,) = examined("""
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: d, namespace: t}
spec: {template: {spec: {schedulerName: volcano, containers: [{name: c}]}}}
""")
    assert (found.system, found.verdict) == ("Volcano", MigrationVerdict.CHANGE)
    assert found.patch == {"spec": {"template": {"spec": {"schedulerName": "phalanx"}}}}


TEMPLATE = "template: {spec: {schedulerName: volcano, containers: [{name: c}]}}"
OPERATORS = [
    (
        "kubeflow.org/v1",
        "PyTorchJob",
        f"{{pytorchReplicaSpecs: {{Master: {{{TEMPLATE}}}, Worker: {{{TEMPLATE}}}}}}}",
        {
            "spec.pytorchReplicaSpecs.Master.template.spec.schedulerName",
            "spec.pytorchReplicaSpecs.Worker.template.spec.schedulerName",
        },
    ),
    (
        "jobset.x-k8s.io/v1alpha2",
        "JobSet",
        f"{{replicatedJobs: [{{name: a, template: {{spec: {{{TEMPLATE}}}}}}}]}}",
        {"spec.replicatedJobs[0].template.spec.template.spec.schedulerName"},
    ),
    (
        "ray.io/v1",
        "RayCluster",
        f"{{headGroupSpec: {{{TEMPLATE}}}, workerGroupSpecs: [{{{TEMPLATE}}}]}}",
        {"spec.headGroupSpec.template.spec.schedulerName", "spec.workerGroupSpecs[0].template.spec.schedulerName"},
    ),
]


@pytest.mark.parametrize(("api_version", "kind", "spec", "fields"), OPERATORS, ids=[each[1] for each in OPERATORS])
def test_every_kind_whose_template_names_an_old_scheduler_is_reported(
    api_version: str, kind: str, spec: str, fields: set[str]
) -> None:
    found = objected_in(
        f"apiVersion: {api_version}\nkind: {kind}\nmetadata: {{name: a, namespace: t}}\nspec: {spec}\n"
    )
    assert set(found) == fields


def test_kind_without_a_reader_is_named_as_such() -> None:
    found = objected_in(f"""
apiVersion: example.com/v1
kind: Training
metadata: {{name: a, namespace: t}}
spec: {{deep: [{{{TEMPLATE}}}]}}
""")
    assert set(found) == {"spec.deep[0].template.spec.schedulerName", "kind"}
    assert "Phalanx does not read a Training" in found["kind"].message


def test_scheduler_named_outside_of_templates_is_reported() -> None:
    found = objected_in("""
apiVersion: argoproj.io/v1alpha1
kind: Workflow
metadata: {name: a, namespace: t}
spec: {schedulerName: volcano, templates: [{name: x, container: {image: x}}]}
""")
    assert "spec.schedulerName" in found


def test_batch_scheduler_of_a_spark_application_is_reported_and_served() -> None:
    text = """
apiVersion: sparkoperator.k8s.io/v1beta2
kind: SparkApplication
metadata: {name: a, namespace: t}
spec: {batchScheduler: volcano, driver: {cores: 1}}
"""
    said = objected_in(text)["spec.batchScheduler"].message
    assert "start spark-operator with --kube-scheduler-names=phalanx and write batchScheduler: phalanx" in said
    assert "remove it" not in said  # then nothing would hold room for the executors
    assert any("--scheduler-name volcano" in step for step in summary(examined(text)).steps)
    assert not examined(text.replace("volcano", "yunikorn"))


def test_objects_without_an_old_scheduler_are_omitted() -> None:
    assert not examined("""
apiVersion: apps/v1
kind: Deployment
metadata: {name: d}
spec: {template: {spec: {containers: [{name: c}]}}}
---
apiVersion: ray.io/v1
kind: RayCluster
metadata: {name: r}
spec: {headGroupSpec: {template: {spec: {schedulerName: my-own, containers: [{name: c}]}}}}
""")


def test_annotations_of_a_workload_itself_are_reported_there() -> None:
    (found,) = examined("""
apiVersion: batch/v1
kind: Job
metadata:
  name: j
  namespace: t
  labels: {kueue.x-k8s.io/queue-name: lq}
  annotations: {kueue.x-k8s.io/job-min-parallelism: "2", scheduling.volcano.sh/group-min-member: "2"}
spec: {template: {spec: {containers: [{name: c}]}}}
""")
    assert set(told(found)) == {
        "metadata.labels[kueue.x-k8s.io/queue-name]",
        "metadata.annotations[kueue.x-k8s.io/job-min-parallelism]",
        "metadata.annotations[scheduling.volcano.sh/group-min-member]",
        "spec.template.spec.schedulerName",
    }
    assert objected_in(yaml.safe_dump(FOUND_ON_JOB)).keys() == {"spec.template.spec.schedulerName"}


FOUND_ON_JOB = {
    "apiVersion": "batch/v1",
    "kind": "Job",
    "metadata": {"name": "j", "annotations": {"scheduling.volcano.sh/group-min-member": "2"}},
    "spec": {"template": {"spec": {"containers": [{"name": "c"}]}}},
}


def test_templates_copied_by_kueue_from_a_job_are_not_patched() -> None:
    found = objected_in("""
apiVersion: kueue.x-k8s.io/v1beta1
kind: Workload
metadata: {name: job-j-1, namespace: t, ownerReferences: [{kind: Job, name: j}]}
spec: {podSets: [{name: main, template: {spec: {schedulerName: volcano, containers: [{name: c}]}}}]}
""")
    (said,) = found.values()
    assert said.field == "spec.podSets[0].template.spec.schedulerName"
    assert "Job j: write phalanx there" in said.message


KAI_KEYS = [
    ("gpu-fraction-num-devices", "docs/gpu-sharing.md"),
    ("gpu-fraction-container-name", "docs/gpu-sharing.md"),
    ("kai.scheduler/topology-required-placement", "kueue.x-k8s.io/podset-required-topology"),
    ("kai.scheduler/topology-preferred-placement", "kueue.x-k8s.io/podset-preferred-topology"),
]


@pytest.mark.parametrize(("key", "instead"), KAI_KEYS)
def test_kai_annotations_of_pods_have_replacements(key: str, instead: str) -> None:
    field = f"metadata.annotations[{key}]" if "/" in key else f"metadata.annotations.{key}"
    said = objected_in(f"""
apiVersion: v1
kind: Pod
metadata: {{name: a, annotations: {{{key}: x}}}}
spec: {{schedulerName: phalanx, containers: [{{name: c}}]}}
""")
    assert said[field].verdict is MigrationVerdict.CHANGE
    assert instead in said[field].message


def test_annotation_read_only_on_pods_has_to_be_in_the_template() -> None:
    found = objected_in(f"""
apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata: {{name: a, annotations: {{scheduling.volcano.sh/queue-name: q, volcano.sh/qos-level: "2"}}}}
spec: {{pytorchReplicaSpecs: {{Worker: {{{TEMPLATE}}}}}}}
""")
    queue = found["metadata.annotations[scheduling.volcano.sh/queue-name]"]
    assert (queue.verdict, "write it into its pod template" in queue.message) == (MigrationVerdict.CHANGE, True)
    assert found["metadata.annotations[volcano.sh/qos-level]"].verdict is MigrationVerdict.NOT_HONOURED
