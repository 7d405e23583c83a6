"""`phalanx submit --dry-run`: jobs made from flags, and defaults filled into files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click.testing
import pytest
import yaml

from phalanx.admission.context import AdmissionContext
from phalanx.admission.jobs import defaults, validate
from phalanx.cli.main import cli


def run(*arguments: str, stdin: str | None = None) -> click.testing.Result:
    return click.testing.CliRunner().invoke(cli, ["submit", *arguments], input=stdin)


def job(*arguments: str) -> dict[str, Any]:
    shown = run("--name", "train", "--image", "torch", "--dry-run", *arguments)
    assert shown.exit_code == 0, shown.output
    document: dict[str, Any] = yaml.safe_load(shown.output)
    return document


def container(document: dict[str, Any], task: int = 0) -> dict[str, Any]:
    found: dict[str, Any] = document["spec"]["tasks"][task]["template"]["spec"]["containers"][0]
    return found


def shape(document: dict[str, Any]) -> tuple[int, list[tuple[str, int, int]]]:
    spec = document["spec"]
    return spec["minAvailable"], [(task["name"], task["replicas"], task["minAvailable"]) for task in spec["tasks"]]


def test_a_job_of_flags_is_a_gang() -> None:
    assert shape(job("--replicas", "4")) == (4, [("task", 4, 4)])


def test_without_a_gang_each_pod_starts_as_it_fits() -> None:
    assert shape(job("--replicas", "4", "--no-gang")) == (1, [("task", 4, 1)])


def test_a_minimum_is_that_of_the_job_and_of_its_tasks_together() -> None:
    assert shape(job("--replicas", "4", "--min", "3")) == (3, [("task", 4, 3)])
    assert shape(job("--replicas", "4", "--min", "3", "--framework", "pytorch")) == (
        3,
        [("master", 1, 1), ("worker", 3, 2)],
    )


def test_amounts_become_requests_and_for_extended_resources_limits_too() -> None:
    resources = container(job("--cpu", "2", "--memory", "4Gi", "--gpu", "1"))["resources"]
    assert resources == {
        "requests": {"cpu": "2", "memory": "4Gi", "nvidia.com/gpu": "1"},
        "limits": {"nvidia.com/gpu": "1"},
    }
    assert container(job("--gpu", "amd.com/gpu=2"))["resources"]["limits"] == {"amd.com/gpu": "2"}


def test_arguments_after_the_dashes_are_the_unchanged_command() -> None:
    made = container(job("--env", "LR=0.1", "--", "python", "train.py", "--name", "x"))
    assert made["command"] == ["python", "train.py", "--name", "x"]
    assert made["env"] == [{"name": "LR", "value": "0.1"}]


def test_queue_priority_namespace_and_scheduler_are_written_once() -> None:
    made = job("--queue", "research", "--priority", "high", "-n", "team-a", "--max-retry", "5")
    spec = {key: made["spec"][key] for key in ("schedulerName", "queue", "priorityClassName", "maxRetry")}
    assert spec == {"schedulerName": "phalanx", "queue": "research", "priorityClassName": "high", "maxRetry": 5}
    assert made["metadata"] == {"name": "train", "namespace": "team-a"}
    assert job("--scheduler-name", "volcano")["spec"]["schedulerName"] == "volcano"


@pytest.mark.parametrize(
    ("framework", "plugins", "tasks"),
    [
        ("pytorch", {"svc", "pytorch"}, [("master", 1, 1), ("worker", 3, 3)]),
        ("tensorflow", {"svc", "tensorflow"}, [("worker", 4, 4)]),
        ("mpi", {"svc", "ssh", "mpi"}, [("master", 1, 1), ("worker", 3, 3)]),
        ("ray", {"svc", "ray"}, [("head", 1, 1), ("worker", 3, 3)]),
    ],
)
def test_a_framework_gets_its_roles_and_plugins_and_restarts_whole(
    framework: str, plugins: set[str], tasks: list[tuple[str, int, int]]
) -> None:
    made = job("--replicas", "4", "--framework", framework)
    assert shape(made) == (4, tasks)
    assert set(made["spec"]["plugins"]) == plugins
    assert made["spec"]["policies"] == [{"events": ["PodFailed", "PodEvicted"], "action": "RestartJob"}]


def test_a_single_pytorch_pod_is_the_master() -> None:
    assert shape(job("--framework", "pytorch")) == (1, [("master", 1, 1)])


@pytest.mark.parametrize(("restart", "action"), [("job", "RestartJob"), ("pod", "RestartPod"), ("never", "")])
def test_restart_policy_can_be_chosen(restart: str, action: str) -> None:
    policies = job("--framework", "pytorch", "--restart", restart)["spec"].get("policies", [])
    assert [policy["action"] for policy in policies] == ([action] if action else [])


@pytest.mark.parametrize("framework", ["", "pytorch", "tensorflow", "mpi", "ray"])
def test_volcanos_webhook_takes_every_job_of_flags_and_fills_in_nothing_that_changes_its_shape(
    framework: str,
) -> None:
    made = job("--replicas", "3", "--gpu", "1", *(["--framework", framework] if framework else []))
    context = AdmissionContext()
    filled = defaults(made, context)
    assert validate(filled.document, None, context) == []
    assert shape(filled.document) == shape(made)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--name", "a"], "--name requires --image"),
        ([], "set either one FILE, or --name and --image"),
        (
            ["--name", "a", "--image", "x", "--min", "3"],
            "invalid --min 3: must be between 1 and 1, the number of replicas",
        ),
        (["--name", "a", "--image", "x", "--min", "1", "--gang"], "--min excludes --gang and --no-gang"),
        (["--name", "a", "--image", "x", "--memory", "4 GB"], "invalid --memory '4 GB'; write an amount such as"),
        (["--name", "a", "--image", "x", "--cpu", "-1"], "invalid --cpu '-1': must not be negative"),
        (
            ["--name", "a", "--image", "x", "--gpu", "1.5"],
            "invalid --gpu '1.5': nvidia.com/gpu must be a whole number",
        ),
        (["--name", "A_b", "--image", "x"], "--name 'A_b': a lowercase RFC 1123 subdomain"),
        (["--name", "a", "--image", "x", "--env", "A"], "invalid --env 'A'; write NAME=VALUE"),
        (
            ["--name", "a", "--image", "x", "--framework", "mpi"],
            "invalid --framework mpi: needs at least 2 replicas",
        ),
        (["job.yaml", "--replicas", "2"], "--replicas excludes FILE"),
        (["--name", "a", "--image", "x", "--framework", "ray", "--replicas", "2", "--", "x"], "without a command"),
    ],
)
def test_impossible_value_is_a_usage_error_that_names_the_flag(arguments: list[str], words: str) -> None:
    refused = run(*arguments)
    assert refused.exit_code == 2, refused.output
    assert words in refused.output


def test_a_bad_name_is_refused_before_anything_is_sent() -> None:
    refused = run("--name", "My Job", "--image", "x")
    assert refused.exit_code == 2
    assert "--name 'My Job': a lowercase RFC 1123 subdomain" in refused.output


MANIFEST = """
apiVersion: batch.volcano.sh/v1alpha1
kind: Job
metadata: {name: a}
spec: {tasks: [{replicas: 1, template: {spec: {containers: [{name: m, image: x}]}}}]}
---
apiVersion: batch.volcano.sh/v1alpha1
kind: Job
metadata: {name: b}
spec:
  queue: own
  schedulerName: volcano
  tasks: [{replicas: 1, template: {spec: {containers: [{name: m, image: x}]}}}]
---
apiVersion: v1
kind: Pod
metadata: {name: c}
spec: {containers: [{name: m, image: x}]}
---
apiVersion: batch/v1
kind: Job
metadata: {name: d}
spec: {template: {spec: {containers: [{name: m, image: x}]}}}
"""


def test_a_file_is_submitted_as_it_is(tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(MANIFEST)
    assert list(yaml.safe_load_all(run(str(file), "--dry-run").output)) == list(yaml.safe_load_all(MANIFEST))


def test_flags_fill_in_fields_that_a_file_omits() -> None:
    shown = run("-", "--queue", "research", "--scheduler-name", "phalanx", "--dry-run", stdin=MANIFEST)
    a, b, c, d = yaml.safe_load_all(shown.output)
    assert (a["spec"]["queue"], a["spec"]["schedulerName"]) == ("research", "phalanx")
    assert (b["spec"]["queue"], b["spec"]["schedulerName"]) == ("own", "volcano")
    annotation = {"scheduling.volcano.sh/queue-name": "research"}
    assert (c["metadata"]["annotations"], c["spec"]["schedulerName"]) == (annotation, "phalanx")
    template = d["spec"]["template"]
    assert (template["metadata"]["annotations"], template["spec"]["schedulerName"]) == (annotation, "phalanx")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "no objects found"),
        ("a: [", "invalid YAML"),
        ("- 1", "document 1 is not an object"),
        ("kind: Job", "document 1 has no apiVersion"),
        ("{apiVersion: v1, kind: Pod}", "document 1 (Pod) has no metadata.name"),
        ("{apiVersion: batch.volcano.sh/v1alpha1, kind: Job, metadata: {name: a}, spec: {}}", "No task specified"),
    ],
)
def test_a_bad_file_is_one_plain_line(text: str, words: str) -> None:
    refused = run("-", stdin=text)
    assert refused.exit_code == 1
    assert words in refused.output
    assert "Traceback" not in refused.output


def test_a_list_is_taken_apart() -> None:
    pods = "".join(f"{{apiVersion: v1, kind: Pod, metadata: {{name: {name}}}, spec: {{}}}}, " for name in "ab")
    shown = run("-", "--dry-run", "-o", "name", stdin=f"{{apiVersion: v1, kind: List, items: [{pods}]}}")
    assert shown.output.splitlines() == ["pod/a", "pod/b"]


NOTIFIED = {
    "phalanx.dev/notify": "end,eviction",
    "phalanx.dev/notify-target": "mail",
    "phalanx.dev/notify-to": "ada",
}
NOTIFY = ("--notify", "end,eviction", "--notify-target", "mail", "--notify-to", "ada")


def test_notifications_of_a_job_of_flags_are_annotations_of_the_job() -> None:
    assert job(*NOTIFY)["metadata"]["annotations"] == NOTIFIED
    assert job("--notify", "all")["metadata"]["annotations"] == {"phalanx.dev/notify": "all"}
    assert "annotations" not in job()["metadata"]


@pytest.mark.parametrize(
    ("version", "kind", "path"),
    [
        ("batch.volcano.sh/v1alpha1", "Job", ""),
        ("batch/v1", "Job", "spec.template"),
        ("batch/v1", "CronJob", "spec.jobTemplate.spec.template"),
        ("apps/v1", "Deployment", "spec.template"),
        ("v1", "Pod", ""),
    ],
)
def test_notifications_of_a_file_are_annotations_that_its_pods_have(
    tmp_path: Path, version: str, kind: str, path: str
) -> None:
    spec = job()["spec"] if "volcano" in version else {}
    file = tmp_path / "job.yaml"
    file.write_text(yaml.safe_dump({"apiVersion": version, "kind": kind, "metadata": {"name": "a"}, "spec": spec}))
    place = yaml.safe_load(run(str(file), "--dry-run", *NOTIFY).output)
    for key in filter(None, path.split(".")):
        place = place[key]
    assert place["metadata"]["annotations"] == NOTIFIED


def test_notifications_that_a_file_states_stay(tmp_path: Path) -> None:
    annotations = {"phalanx.dev/notify": "start"}
    file = tmp_path / "pod.yaml"
    metadata = {"name": "a", "annotations": annotations}
    file.write_text(yaml.safe_dump({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {}}))
    assert yaml.safe_load(run(str(file), "--dry-run", *NOTIFY).output)["metadata"]["annotations"] == annotations


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--notify", "endd"), "unknown event 'endd'; expected some of all, start, end"),
        (("--notify", ","), "no event is named"),
        (("--notify", "end", "--notify-to", "ada@example.com"), "before the @"),
        (("--notify-to", "ada"), "set notify too"),
        (("--notify-target", "mail"), "set notify too"),
    ],
)
def test_invalid_notification_is_refused_before_a_job_is_created(options: tuple[str, ...], words: str) -> None:
    refused = run("--name", "train", "--image", "torch", "--dry-run", *options)
    assert refused.exit_code != 0
    assert words in refused.output


def test_notifications_of_objects_without_known_pods_name_the_annotation(tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text("apiVersion: kubeflow.org/v1\nkind: PyTorchJob\nmetadata: {name: a}\nspec: {}\n")
    refused = run(str(file), "--dry-run", "--notify", "end")
    assert refused.exit_code == 1
    assert "write the annotation phalanx.dev/notify on the pod template" in refused.output


def test_memory_without_a_unit_is_refused() -> None:
    refused = run("--name", "train", "--image", "torch", "--dry-run", "--memory", "4")
    assert refused.exit_code == 2
    assert "invalid --memory '4': that is 4 bytes; write a unit, such as 4Gi" in refused.output
