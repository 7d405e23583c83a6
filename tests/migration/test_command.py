"""`phalanx migrate` on files, object by object: working, changed and unsupported parts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result
from hypothesis import given, settings
from hypothesis import strategies as st

from phalanx.cli.main import cli
from phalanx.reports.migration.examine import Examiner
from phalanx.reports.migration.findings import MigrationVerdict
from phalanx.reports.migration.readers import Readers
from phalanx.reports.migration.steps import Webhook, summary
from tests.extent import examples

READERS = Readers()
MANIFESTS = Path(__file__).parent / "manifests.yaml"


def migrate(*arguments: str) -> Result:
    return CliRunner().invoke(cli, ["migrate", *arguments])


def examined(*documents: object) -> Examiner:
    examiner = Examiner(readers=READERS)
    examiner.add_all(documents)
    return examiner


@pytest.fixture(scope="module")
def report() -> dict[str, Any]:
    result = migrate("--from", str(MANIFESTS), "-o", "json")
    assert result.exit_code == 1, result.output
    told: dict[str, Any] = json.loads(result.stdout)
    return told


def one(report: dict[str, Any], kind: str, name: str) -> dict[str, Any]:
    (found,) = [each for each in report["objects"] if (each["kind"], each["name"]) == (kind, name)]
    return dict(found)


def fields(found: dict[str, Any], verdict: str) -> dict[str, str]:
    return {each["field"]: each["message"] for each in found["fields"] if each["verdict"] == verdict}


def test_every_object_has_a_verdict(report: dict[str, Any]) -> None:
    verdicts = {(each["kind"], each["name"]): each["verdict"] for each in report["objects"]}
    assert verdicts == {
        ("Queue", "research"): "not honoured",
        ("PodGroup", "train"): "works as it is",
        ("Job", "mpi"): "works after a change",
        ("ConfigMap", "volcano-scheduler-configmap"): "works as it is",
        ("PodGroup", "nginx"): "works as it is",
        ("ElasticQuota", "quota-b"): "works as it is",
        ("KubeSchedulerConfiguration", "-"): "not honoured",
        ("Pod", "nginx-1"): "works after a change",
        ("PodGroup", "koord-gang"): "not honoured",
        ("ElasticQuota", "team-c"): "works as it is",
        ("Reservation", "kept"): "works after a change",
        ("Pod", "web-1"): "not honoured",
        ("Queue", "kai-team"): "not honoured",
        ("PodGroup", "kai-pg"): "not honoured",
        ("Deployment", "kai-dep"): "works after a change",
        ("ClusterQueue", "cq"): "works as it is",
        ("LocalQueue", "lq"): "works as it is",
        ("ResourceFlavor", "default"): "works as it is",
        ("Job", "kj"): "works after a change",
    }


def test_decisions_about_fields_are_made_field_by_field(report: dict[str, Any]) -> None:
    assert fields(one(report, "Queue", "research"), "not honoured").keys() == {
        "spec.type",
        "spec.extendClusters[0].name",
    }
    mode = "metadata.annotations[gang.scheduling.koordinator.sh/mode]"
    assert "write Strict" in fields(one(report, "PodGroup", "koord-gang"), "not honoured")[mode]


def test_nonstrict_is_not_honoured_in_the_words_of_the_scheduler() -> None:
    gang = "gang.scheduling.koordinator.sh/"
    annotations = {f"{gang}name": "g", f"{gang}min-available": "2", f"{gang}mode": "NonStrict"}
    spec = {"schedulerName": "phalanx", "containers": [{"name": "c"}]}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p", "namespace": "n", "annotations": annotations},
        "spec": spec,
    }
    read = Readers().reader(pod)
    assert read is not None
    assert any("no room is held" in message for message in read(pod)[1])


def test_field_with_a_mistake_names_the_fix() -> None:
    group = {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "PodGroup",
        "metadata": {"name": "a", "namespace": "b"},
        "spec": {"minMember": "many", "queue": "q"},
    }
    (found,) = examined(group).found
    told = {each.field: each for each in found.fields}
    assert told["spec.minMember"].verdict is MigrationVerdict.CHANGE
    assert "write a whole number of at least 1" in told["spec.minMember"].message
    assert told["spec.queue"].verdict is MigrationVerdict.WORKS


def test_queue_that_replaces_a_kai_queue_has_equal_settings(report: dict[str, Any]) -> None:
    (queue,) = one(report, "Queue", "kai-team")["manifests"]
    assert queue["spec"] == {
        "reclaimable": True,
        "parent": "default",
        "priority": 5,
        "deserved": {"cpu": "4000m", "memory": "1000000000", "nvidia.com/gpu": "2"},
        "capability": {"nvidia.com/gpu": "8"},
        "weight": 3,
    }
    (group,) = one(report, "PodGroup", "kai-pg")["manifests"]
    assert group["spec"] == {"minMember": 2, "queue": "kai-team", "priorityClassName": "train"}


def test_written_manifests_work_unchanged(report: dict[str, Any]) -> None:
    made = [document for each in report["objects"] for document in each["manifests"]]
    found = examined(*made).found
    assert len(found) == 2
    assert {each.verdict for each in found} == {MigrationVerdict.WORKS}


def test_the_patch_of_a_template_makes_its_pods_ours(report: dict[str, Any]) -> None:
    patch = one(report, "Deployment", "kai-dep")["patch"]
    annotations = {"scheduling.volcano.sh/queue-name": "kai-team"}
    assert patch == {
        "spec": {"template": {"spec": {"schedulerName": "phalanx"}, "metadata": {"annotations": annotations}}}
    }


def test_template_of_a_job_is_reported_as_not_patchable() -> None:
    template = {"spec": {"schedulerName": "volcano", "containers": []}}
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j"}, "spec": {"template": template}}
    (found,) = examined(job).found
    assert found.patch is None
    assert "the template of a Job is immutable" in found.fields[-1].message


def test_pods_of_another_scheduler_are_reported_to_need_our_name() -> None:
    def told(scheduler: dict[str, str]) -> str:
        metadata = {"name": "p", "labels": {"scheduling.x-k8s.io/pod-group": "g"}}
        spec = {"containers": [{"name": "c"}], **scheduler}
        (found,) = examined({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}).found
        return "".join(each.message for each in found.fields if each.field == "spec.schedulerName")

    assert told({"schedulerName": "phalanx"}) == ""
    assert "--scheduler-name my-own" in told({"schedulerName": "my-own"})
    assert "kube-scheduler's name" in told({})


def test_the_name_of_kube_scheduler_is_not_taken_over(report: dict[str, Any]) -> None:
    assert not [step for step in report["steps"] if "default-scheduler" in step]


def test_pods_of_one_owner_are_reported_once() -> None:
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "u"}
    pods = [
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": f"p{at}", "ownerReferences": [owner]},
            "spec": {"schedulerName": "volcano", "containers": [{"name": "c"}]},
        }
        for at in range(500)
    ]
    (found,) = examined(*pods).found
    assert found.alike == 499


def test_pods_without_an_owner_and_ended_pods_are_omitted() -> None:
    plain = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": {"containers": []}}
    over = {**plain, "spec": {"schedulerName": "volcano"}, "status": {"phase": "Succeeded"}}
    assert examined(plain, over).found == []


POLICY = """\
actions: "enqueue, alocate, backfill"
tiers:
- plugins:
  - name: gang
  - name: usages
  - name: predicates
"""


def test_policy_that_would_not_load_is_written_without_its_unknown_parts(tmp_path: Path) -> None:
    config = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "c", "namespace": "volcano-system"},
        "data": {"volcano-scheduler.conf": POLICY},
    }
    (tmp_path / "in.yaml").write_text(yaml.safe_dump(config))
    result = migrate("--from", str(tmp_path / "in.yaml"), "--write", str(tmp_path / "out"))
    assert result.exit_code == 1
    assert "unknown plugin 'usages'" in result.stdout
    policy = str(tmp_path / "out" / "policy.yaml")
    assert CliRunner().invoke(cli, ["policy", "lint", policy]).exit_code == 0


def test_manifests_and_patches_are_written_where_they_were_asked_for(tmp_path: Path) -> None:
    migrate("--from", str(MANIFESTS), "--write", str(tmp_path))
    written = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*.yaml")}
    assert written == {
        "policy.yaml",
        "objects/01-queue-kai-team.yaml",
        "objects/99-podgroup-team-d-kai-pg.yaml",
        "patches/deployment-team-d-kai-dep.yaml",
    }


def test_no_name_leads_out_of_the_directory(tmp_path: Path) -> None:
    queue = {"apiVersion": "scheduling.run.ai/v2", "kind": "Queue", "metadata": {"name": "../../x"}, "spec": {}}
    (tmp_path / "in.yaml").write_text(yaml.safe_dump(queue))
    migrate("--from", str(tmp_path / "in.yaml"), "--write", str(tmp_path / "deep" / "out"))
    assert [path.name for path in tmp_path.rglob("*.yaml") if path.name != "in.yaml"] == ["01-queue-.._.._x.yaml"]


def test_the_exit_code_says_whether_something_is_lost(tmp_path: Path) -> None:
    group = "apiVersion: scheduling.volcano.sh/v1beta1\nkind: PodGroup\nmetadata: {name: a}\nspec: {minMember: 2}\n"
    (tmp_path / "a.yaml").write_text(group)
    assert migrate("--from", str(tmp_path)).exit_code == 0
    (tmp_path / "b.yaml").write_text("a: [")
    result = migrate("--from", str(tmp_path))
    assert (result.exit_code, "not read: " in result.stdout) == (1, True)
    assert migrate("--from", str(tmp_path / "nowhere")).exit_code == 2


@pytest.mark.parametrize("document", ["[a]", "text", "{kind: Queue}", "{apiVersion: v1, kind: 5}"])
def test_malformed_object_is_named(tmp_path: Path, document: str) -> None:
    group = "apiVersion: scheduling.volcano.sh/v1beta1\nkind: PodGroup\nmetadata: {name: a}\nspec: {minMember: 2}\n"
    (tmp_path / "a.yaml").write_text(f"{group}---\n{document}\n---\n")
    result = migrate("--from", str(tmp_path))
    assert (result.exit_code, "PodGroup a" in result.stdout) == (1, True)
    assert f"not read: {tmp_path}/a.yaml: document 2 is no object" in result.stdout


def test_lists_as_the_api_server_answers_them_are_read(tmp_path: Path) -> None:
    answer = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "QueueList"}
    (tmp_path / "a.yaml").write_text(yaml.safe_dump({**answer, "items": [{"metadata": {"name": "q"}}, 5]}))
    result = migrate("--from", str(tmp_path))
    assert "Queue q (scheduling.volcano.sh): works as it is" in result.stdout
    assert "items[1]: 5 is no object" in result.stdout


def test_the_help_says_that_all_namespaces_are_read() -> None:
    words = " ".join(migrate("--help").stdout.split())
    assert "Default: all namespaces" in words
    assert "kubeconfig's context." not in words


def test_empty_result_is_stated(tmp_path: Path) -> None:
    result = migrate("--from", str(tmp_path))
    assert (result.exit_code, "no objects of Volcano" in result.stdout) == (0, True)


def test_steps_stop_the_old_schedulers_before_phalanx_schedules_their_pods(report: dict[str, Any]) -> None:
    steps = report["steps"]
    started = next(at for at, step in enumerate(steps) if step.startswith("phalanx scheduler"))
    stopped = [at for at, step in enumerate(steps) if ": stop " in step]
    assert len(stopped) == 4
    assert max(stopped) < started
    for name in ("volcano", "koord-scheduler", "scheduler-plugins-scheduler", "kai-scheduler"):
        assert f"--scheduler-name {name}" in steps[started]


def test_webhooks_that_would_outlive_their_controller_are_named() -> None:
    found = examined(*yaml.safe_load_all(MANIFESTS.read_text())).found
    steps = summary(found, [Webhook("volcano-admission", ("batch.volcano.sh",)), Webhook("other", ("apps",))]).steps
    (said,) = [step for step in steps if step.startswith("webhooks")]
    assert "volcano-admission" in said
    assert "other," not in said


KINDS = [
    ("v1", "Pod"),
    ("v1", "ConfigMap"),
    ("v1", "List"),
    ("apps/v1", "Deployment"),
    ("kubescheduler.config.k8s.io/v1", "KubeSchedulerConfiguration"),
    ("scheduling.volcano.sh/v1beta1", "Queue"),
    ("scheduling.volcano.sh/v1beta1", "PodGroup"),
    ("batch.volcano.sh/v1alpha1", "Job"),
    ("scheduling.sigs.k8s.io/v1alpha1", "ElasticQuota"),
    ("scheduling.koordinator.sh/v1alpha1", "Reservation"),
    ("scheduling.run.ai/v2", "Queue"),
    ("scheduling.run.ai/v2alpha2", "PodGroup"),
    ("kueue.x-k8s.io/v1beta1", "ClusterQueue"),
    ("kueue.x-k8s.io/v1beta1", "Workload"),
    ("quota.koordinator.sh/v1alpha1", "ElasticQuotaProfile"),
    ("topology.volcano.sh/v1alpha1", "HyperNode"),
    ("batch.volcano.sh/v1alpha1", "CronJob"),
    ("ray.io/v1", "RayCluster"),
    ("example.com/v1", "Thing"),
]
KEYS = (
    *("name", "labels", "annotations", "template", "spec", "resources", "cpu", "quota", "items", "volcano.sh/x"),
    *("parentQueue", "priority", "members", "tasks", "containers", "schedulerName", "ownerReferences"),
)
ANYTHING = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.sampled_from(KEYS), inner, max_size=3)),
    max_leaves=8,
)


@pytest.mark.thorough
@settings(max_examples=examples(150), deadline=None)
@given(kind=st.sampled_from(KINDS), metadata=ANYTHING, spec=ANYTHING, data=ANYTHING)
def test_no_object_affects_the_findings_about_another(
    kind: tuple[str, str], metadata: Any, spec: Any, data: Any
) -> None:
    broken = {"apiVersion": kind[0], "kind": kind[1], "metadata": metadata, "spec": spec, "data": data}
    good = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue", "metadata": {"name": "research"}}
    examiner = examined(broken, {**broken, "profiles": data, "items": data}, good)
    assert any(each.name == "research" for each in examiner.found)
    summary(examiner.found)
