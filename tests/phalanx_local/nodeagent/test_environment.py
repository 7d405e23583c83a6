"""Environment of a process: variables, the downward API, its command line, its peers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from phalanx_local.nodeagent.core_v1 import V1Container
from phalanx_local.nodeagent.pod_runtime.environment import (
    ContainerConfigError,
    PodFacts,
    build_environment,
    command_line,
    expand,
    hostname,
)
from phalanx_local.nodeagent.pod_runtime.hosts import Hosts

from .pods import container, pod


def spec(**fields: Any) -> V1Container:
    return msgspec.convert(container(**fields), V1Container)


def facts(**fields: Any) -> PodFacts:
    subject = pod("worker-0", **fields)
    subject.metadata.labels = {"app": "x", "example.com/role": "worker"}
    return PodFacts(subject, "127.128.0.7", "127.0.0.1", {"cpu": 8000, "memory": 2**33})


def value(source: dict[str, Any], **fields: Any) -> str:
    own = spec(env=[{"name": "V", "valueFrom": source}], **fields)
    return build_environment(facts(containers=[msgspec.to_builtins(own)]), own, {})["V"]


@pytest.mark.parametrize(
    ("text", "expanded"),
    [
        ("$(A)", "1"),
        ("x$(A)y$(B)", "x1y2"),
        ("$(UNKNOWN)", "$(UNKNOWN)"),
        ("$$(A)", "$(A)"),
        ("$$$(A)", "$1"),
        ("$A", "$A"),
        ("cost: 5$", "cost: 5$"),
        ("$(A", "$(A"),
    ],
)
def test_references_are_replaced_as_kubernetes_does(text: str, expanded: str) -> None:
    assert expand(text, {"A": "1", "B": "2"}) == expanded


def test_variable_can_refer_to_earlier_ones() -> None:
    own = spec(env=[{"name": "A", "value": "1"}, {"name": "B", "value": "$(A)2$(C)"}, {"name": "C", "value": "3"}])
    assert build_environment(facts(), own, {"PATH": "/bin"}) == {"PATH": "/bin", "A": "1", "B": "12$(C)", "C": "3"}


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("metadata.name", "worker-0"),
        ("metadata.namespace", "default"),
        ("metadata.uid", "uid-worker-0"),
        ("metadata.labels['example.com/role']", "worker"),
        ("metadata.labels['none']", ""),
        ("spec.nodeName", "n0"),
        ("spec.serviceAccountName", "default"),
        ("status.podIP", "127.128.0.7"),
        ("status.hostIP", "127.0.0.1"),
    ],
)
def test_fields_of_the_pod(path: str, text: str) -> None:
    assert value({"fieldRef": {"fieldPath": path}}) == text


@pytest.mark.parametrize(
    ("reference", "text"),
    [
        ({"resource": "limits.cpu"}, "2"),  # 1500m, rounded up to whole cores
        ({"resource": "limits.cpu", "divisor": "1m"}, "1500"),
        ({"resource": "requests.memory", "divisor": "1Mi"}, "64"),
        ({"resource": "limits.memory", "divisor": "1Gi"}, "8"),  # no limit: all that the node has
        ({"resource": "requests.cpu"}, "0"),
        ({"resource": "limits.cpu", "containerName": "main", "divisor": "0"}, "2"),
    ],
)
def test_resources_of_a_container(reference: dict[str, Any], text: str) -> None:
    resources = {"limits": {"cpu": "1500m"}, "requests": {"memory": "64Mi"}}
    assert value({"resourceFieldRef": reference}, resources=resources) == text


@pytest.mark.parametrize(
    "source",
    [
        {"fieldRef": {"fieldPath": "spec.nothing"}},
        {"resourceFieldRef": {"resource": "cpu"}},
        {"resourceFieldRef": {"resource": "limits.cpu", "containerName": "who"}},
        {"resourceFieldRef": {"resource": "limits.cpu", "divisor": "x"}},
        {"fileKeyRef": {"volumeName": "v", "path": "p", "key": "k"}},
        {},
    ],
)
def test_a_source_that_cannot_be_had_is_named(source: dict[str, Any]) -> None:
    with pytest.raises(ContainerConfigError, match="container main: env V: "):
        value(source)


def test_the_command_line_is_command_and_args() -> None:
    own = spec(command=["run", "$(A)"], args=["--to", "$(B)"])
    assert command_line(own, {"A": "1", "B": "2"}) == ["run", "1", "--to", "2"]


def test_a_container_without_a_command_cannot_be_run_here() -> None:
    with pytest.raises(ContainerConfigError, match="container main has no command"):
        command_line(spec(args=["x"]), {})


def test_a_pod_is_called_by_its_name_unless_it_says_otherwise() -> None:
    assert hostname(pod("worker-0")) == "worker-0"
    assert hostname(pod("worker-0", hostname="w")) == "w"
    assert hostname(pod("w" * 62 + "-long")) == "w" * 62


def test_the_hosts_file_knows_the_living_pods_of_a_namespace(tmp_path: Path) -> None:
    hosts = Hosts(tmp_path)
    first, second = pod("w-0", subdomain="ring"), pod("w-1", hostname="one")
    hosts.add(first, "127.1.0.1")
    hosts.add(second, "127.1.0.2")
    both = hosts.path("default").read_text()
    assert both == "127.1.0.1 w-0 w-0.ring w-0.ring.default.svc\n127.1.0.2 w-1 one\n"
    hosts.remove(first)
    assert hosts.path("default").read_text() == "127.1.0.2 w-1 one\n"
