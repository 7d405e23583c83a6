"""Arguments of the SDK become the objects that `phalanx submit` creates, or an error with the argument's name."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import click.testing
import pytest
import yaml

from phalanx.cli.main import cli
from phalanx.reports.jobs.entries import JobEntry
from phalanx.sdk import AsyncCluster, AsyncJob, GangExecutor
from phalanx.sdk.errors import InvalidArgumentError, translated
from phalanx.sdk.gang.objects import gang_job
from phalanx.sdk.requests import command_job, manifest_objects, script_command


def test_job_of_the_sdk_equals_the_job_of_the_same_flags() -> None:
    words = [
        "submit",
        "--name",
        "a",
        "--image",
        "x",
        "--replicas",
        "4",
        "--min",
        "2",
        "--gpu",
        "1",
        "--cpu",
        "500m",
    ]
    words += [
        "--queue",
        "q",
        "--env",
        "A=B",
        "--restart",
        "pod",
        "--max-retry",
        "5",
        "--dry-run",
        "--",
        "run",
        "it",
    ]
    by_flags = yaml.safe_load(click.testing.CliRunner().invoke(cli, words).output)
    options: Any = {"image": "x", "replicas": 4, "minimum": 2, "gpus": 1, "cpus": 0.5, "queue": "q"}
    options |= {"environment": {"A": "B"}, "restart": "pod", "max_retry": 5}
    assert command_job(["run", "it"], "a", options) == by_flags


def test_image_of_the_environment_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PHALANX_IMAGE", "torch")
    (task,) = command_job("echo hi", "a", {})["spec"]["tasks"]
    container = task["template"]["spec"]["containers"][0]
    assert container["image"] == "torch"
    assert container["command"] == ["/bin/sh", "-c", "echo hi"]


def test_resubmitted_job_restarts_as_a_whole_after_an_eviction_only() -> None:
    spec = command_job(["x"], "a", {"resubmit": 4})["spec"]
    assert spec["policies"] == [{"event": "PodEvicted", "action": "RestartJob"}]
    assert spec["maxRetry"] == 4


@pytest.mark.parametrize(
    ("options", "field", "words"),
    [
        ({"replicas": 0}, "replicas", "must be a whole number of at least 1"),
        ({"replicas": 2, "minimum": 3}, "minimum", "must be between 1 and 2"),
        ({"gpus": 1.5}, "gpus", "must be a whole number"),
        ({"cpus": "many"}, "cpus", "invalid cpus 'many'"),
        ({"restart": "always"}, "restart", "expected one of job, pod, never"),
        ({"color": 1}, "color", "unknown argument 'color'"),
        ({"resubmit": -1}, "resubmit", "must be a whole number of at least 0"),
        ({"max_retry": "two"}, "max_retry", "must be a whole number of at least 0"),
        ({"environment": ["A"]}, "environment", "must be a dictionary"),
        ({"image": 5}, "image", "must be a text"),
    ],
)
def test_invalid_argument_is_an_error_with_its_name(options: Any, field: str, words: str) -> None:
    with pytest.raises(InvalidArgumentError, match=words) as caught, translated():
        command_job(["x"], "a", options)
    assert caught.value.field == field


@pytest.mark.parametrize("command", ["", " ", [], [""], b"ls", 5, ["ls", "\0"]])
def test_invalid_command_is_an_error_of_the_argument(command: Any) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        command_job(command, "a", {})
    assert caught.value.field == "command"


def test_module_that_is_given_by_its_name_is_an_error_of_the_argument() -> None:
    modules: Any = ["numpy"]
    with pytest.raises(InvalidArgumentError, match="not its name") as caught:
        GangExecutor(1, modules=modules)
    assert caught.value.field == "modules"


async def test_number_of_pods_that_is_no_whole_number_is_an_error_before_a_request() -> None:
    replicas: Any = 1.5
    job = AsyncJob(cast("AsyncCluster", None), JobEntry(kind="vcjob", namespace="a", name="a"))
    with pytest.raises(InvalidArgumentError, match=r"invalid replicas 1\.5: must be a whole number"):
        await job.scale(replicas)


def test_script_runs_with_the_interpreter_of_its_first_line(tmp_path: Path) -> None:
    file = tmp_path / "train.sh"
    file.write_text("#!/usr/bin/env bash\necho hi\n")
    assert script_command(file)[:3] == ["/usr/bin/env", "bash", "-c"]
    other = tmp_path / "train.py"
    other.write_text("print(1)")
    assert script_command(other) == ["python3", "-u", "-c", "print(1)"]
    with pytest.raises(InvalidArgumentError, match="cannot read the script"):
        script_command(tmp_path / "missing.py")


def test_gang_prints_without_a_buffer_unless_its_user_sets_the_variable() -> None:
    def variables(options: Any) -> dict[str, Any]:
        job = gang_job("a", options, client_timeout=1, python="", local=False, namespace="")
        (container,) = job["spec"]["tasks"][0]["template"]["spec"]["containers"]
        return {variable["name"]: variable.get("value") for variable in container["env"]}

    assert variables({"image": "x"})["PYTHONUNBUFFERED"] == "1"
    assert variables({"image": "x", "environment": {"PYTHONUNBUFFERED": ""}})["PYTHONUNBUFFERED"] == ""


def test_manifest_is_a_dictionary_a_file_or_a_text(tmp_path: Path) -> None:
    document = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}}
    file = tmp_path / "pod.yaml"
    file.write_text(yaml.safe_dump(document))
    for manifest in (document, [document], file, str(file), yaml.safe_dump(document)):
        assert manifest_objects(manifest) == [document]
    bad: dict[Any, str] = {"a: [": "invalid YAML", "no.yaml": "cannot read no.yaml"}
    for manifest, words in (*bad.items(), ({"apiVersion": "v1", "kind": "Pod"}, r"has no metadata\.name")):
        with pytest.raises(InvalidArgumentError, match=words) as caught:
            manifest_objects(manifest)
        assert caught.value.field == "manifest"


@pytest.mark.parametrize("memory", [4, "4", 1.5, "16k", True, 2**20 - 1])
def test_memory_without_a_unit_is_an_error_and_not_a_few_bytes(memory: Any) -> None:
    with pytest.raises(InvalidArgumentError) as refused, translated("a"):
        command_job(["x"], "a", cast("Any", {"image": "x", "memory": memory}))
    assert refused.value.field == "memory"
    assert "4Gi" in refused.value.message


@pytest.mark.parametrize(("memory", "request_of_it"), [("4Gi", "4Gi"), (2**30, "1073741824"), ("1Mi", "1Mi")])
def test_memory_in_bytes_or_with_a_unit_is_the_request(memory: Any, request_of_it: str) -> None:
    document = command_job(["x"], "a", cast("Any", {"image": "x", "memory": memory}))
    resources = document["spec"]["tasks"][0]["template"]["spec"]["containers"][0]["resources"]
    assert resources["requests"]["memory"] == request_of_it
