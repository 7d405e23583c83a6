"""Jobs whose operators write the scheduler's name into their pods: the finding is about the operator, not the
template.
"""

from __future__ import annotations

import pytest
import yaml

from phalanx.reports.migration.findings import MigrationVerdict, ObjectFinding
from phalanx.reports.migration.steps import summary

from .examined import examined, objected, objected_in

CONTAINERS = "containers: [{name: c}]"


def owned(kind: str, name: str, api_version: str) -> str:
    reference = f"{{apiVersion: {api_version}, kind: {kind}, name: {name}, uid: u-{name}, controller: true}}"
    return f"ownerReferences: [{reference}]"


def pod(owner: str, scheduler: str = "volcano", labels: str = "") -> str:
    head = f"{{name: p, namespace: t, labels: {{{labels}}}, {owner}}}"
    return f"apiVersion: v1\nkind: Pod\nmetadata: {head}\nspec: {{schedulerName: {scheduler}, {CONTAINERS}}}\n"


def job(kind: str, api_version: str, field: str, name: str = "", metadata: str = "") -> str:
    template = f"template: {{spec: {{{f'schedulerName: {name}, ' if name else ''}{CONTAINERS}}}}}"
    head = f"{{name: a, namespace: t, uid: u-a, {metadata}}}"
    spec = f"{{{field}: {{Worker: {{{template}}}}}}}"
    return f"apiVersion: {api_version}\nkind: {kind}\nmetadata: {head}\nspec: {spec}\n"


def called(found: list[ObjectFinding], kind: str) -> ObjectFinding:
    return next(each for each in found if each.kind == kind)


@pytest.mark.parametrize(
    ("kind", "api_version", "field", "option"),
    [
        ("PyTorchJob", "kubeflow.org/v1", "pytorchReplicaSpecs", "--gang-scheduler-name=phalanx"),
        ("TFJob", "kubeflow.org/v1", "tfReplicaSpecs", "--gang-scheduler-name=phalanx"),
        ("MPIJob", "kubeflow.org/v1", "mpiReplicaSpecs", "--gang-scheduler-name=phalanx"),
        ("MPIJob", "kubeflow.org/v2beta1", "mpiReplicaSpecs", "-gang-scheduling phalanx"),
    ],
)
@pytest.mark.parametrize("stated", ["", "volcano"])
def test_job_names_the_option_of_its_operator(
    kind: str, api_version: str, field: str, option: str, stated: str
) -> None:
    """Its template names Volcano, or its pods show that the operator does."""
    texts = job(kind, api_version, field, stated), pod(owned(kind, "a", api_version))
    found = examined(*texts)
    for each in (kind, "Pod"):
        (said,) = objected(called(found, each)).values()
        assert option in said.message
        assert "write phalanx" not in said.message
    assert "phalanx scheduler --scheduler-name phalanx --scheduler-name volcano" in summary(found).steps


def test_job_whose_operator_writes_no_scheduler_name_gets_no_finding() -> None:
    assert not examined(job("PyTorchJob", "kubeflow.org/v1", "pytorchReplicaSpecs"))
    of_ours = pod(owned("PyTorchJob", "a", "kubeflow.org/v1"), "phalanx")
    assert not examined(job("PyTorchJob", "kubeflow.org/v1", "pytorchReplicaSpecs"), of_ours)


def test_group_created_by_an_operator_shows_the_name_that_it_writes() -> None:
    group = f"""
apiVersion: scheduling.volcano.sh/v1beta1
kind: PodGroup
metadata: {{name: a, namespace: t, {owned("PyTorchJob", "a", "kubeflow.org/v1")}}}
spec: {{minMember: 2}}
"""
    found = examined(group, job("PyTorchJob", "kubeflow.org/v1", "pytorchReplicaSpecs"))
    assert called(found, "PyTorchJob").verdict is MigrationVerdict.CHANGE


RAY_KEYS = (
    "labels: {volcano.sh/queue-name: q}, annotations: {scheduling.k8s.io/group-name: g, volcano.sh/task-spec: x}"
)


def test_scheduler_name_written_by_kuberay_stays_served_and_its_copies_get_no_finding() -> None:
    found = examined(
        job("RayJob", "ray.io/v1", "rayClusterSpec", metadata=RAY_KEYS),
        job("RayCluster", "ray.io/v1", "groups", metadata=f"{RAY_KEYS}, {owned('RayJob', 'a', 'ray.io/v1')}"),
        pod(owned("RayCluster", "a", "ray.io/v1")),
    )
    (said,) = objected(called(found, "RayJob")).values()
    assert (
        "KubeRay --batch-scheduler=volcano overwrites the scheduler name of templates with volcano" in said.message
    )
    assert "and keep that name" in said.message
    assert not any(each.kind == "RayCluster" for each in found)
    steps = summary(found).steps
    assert any("--scheduler-name volcano" in step for step in steps)
    assert not any("is enough" in step for step in steps)


def test_edit_of_an_operators_objects_is_never_suggested() -> None:
    text = job("RayCluster", "ray.io/v1", "groups", "volcano", owned("RayJob", "a", "ray.io/v1"))
    (said,) = objected_in(text).values()
    assert said.message == "RayJob a creates it: see the finding about that object"


def test_unknown_scheduler_name_is_not_served() -> None:
    text = pod("", "somebody", "scheduling.x-k8s.io/pod-group: g")
    assert "scheduler somebody is unknown" in objected_in(text)["spec.schedulerName"].message
    assert not any("somebody" in step for step in summary(examined(text)).steps)


def test_record_of_our_scheduler_is_no_policy_to_migrate() -> None:
    labels = {"app.kubernetes.io/name": "phalanx", "app.kubernetes.io/managed-by": "phalanx"}
    head = {"name": "phalanx-policy-in-force", "namespace": "kube-system", "labels": labels}
    document = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": head, "data": {"policy.yaml": "actions: x"}}
    assert not examined(yaml.safe_dump(document))
    assert examined(yaml.safe_dump({**document, "metadata": {"name": "volcano-scheduler-configmap"}}))
