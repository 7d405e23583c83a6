"""The cluster is read with lists alone; unreadable kinds are named, and the remaining ones reported."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from phalanx.kube.client import KubeClient
from phalanx.kube.errors import ApiError
from phalanx.kube.paths import Resource
from phalanx.reports.migration.examine import Examiner
from phalanx.reports.migration.read import Source, read_cluster_objects, read_documents
from phalanx.reports.migration.steps import summary

QUEUES = Resource("scheduling.volcano.sh", "v1beta1", "queues", "Queue", namespaced=False)


class Server(KubeClient):
    """A server that answers with the given pages, or with the given error."""

    def __init__(self, *answers: list[str] | ApiError) -> None:
        self.answers = list(answers)
        self.asked: list[tuple[str, str | None]] = []

    async def request(self, method: str, path: str, **options: Any) -> bytes:
        self.asked.append((method, options["params"]["continue"]))
        answer = self.answers.pop(0)
        if isinstance(answer, ApiError):
            raise answer
        token = str(len(self.answers)) if self.answers else ""
        items = [{"metadata": {"name": name}} for name in answer]
        return json.dumps({"metadata": {"continue": token}, "items": items}).encode()


async def names(server: Server, source: Source) -> list[str]:
    return [each["metadata"]["name"] async for each in read_documents(server, QUEUES, source.missing, None)]


async def test_every_page_is_asked_for_and_nothing_but_read() -> None:
    server, source = Server(["a", "b"], ["c"], ["d"]), Source(Examiner())
    assert await names(server, source) == ["a", "b", "c", "d"]
    assert server.asked == [("GET", None), ("GET", "2"), ("GET", "1")]
    assert source.missing == []


async def test_forbidden_kind_is_named() -> None:
    source = Source(Examiner())
    assert await names(Server(ApiError(403, "Forbidden", "queues is forbidden")), source) == []
    assert source.missing == ["queues.scheduling.volcano.sh: queues is forbidden"]


async def test_interrupted_list_is_named_and_its_received_part_reported() -> None:
    source = Source(Examiner())
    assert await names(Server(["a"], ApiError(410, "Expired", "the list is too old")), source) == ["a"]
    assert source.missing == ["queues.scheduling.volcano.sh: the list is too old"]


async def test_kind_that_is_not_served_is_ignored() -> None:
    source = Source(Examiner())
    assert await names(Server(ApiError(404, "NotFound", "no")), source) == []
    assert source.missing == []


async def test_a_server_that_fails_is_not_taken_for_an_empty_one() -> None:
    with pytest.raises(ApiError):
        await names(Server(ApiError(500, "InternalError", "no")), Source(Examiner()))


class Cluster(KubeClient):
    """A cluster with Queues, Koordinator's quotas and PodGroups, each referring to a missing name; `refused`
    may not be listed.
    """

    def __init__(self, *refused: str) -> None:
        self.refused = refused

    async def get(self, path: str, params: object = None, *, accept: str = "") -> dict[str, Any]:
        if path == "/api":
            return {"kind": "APIGroupDiscoveryList", "items": []}
        kinds = {
            "scheduling.volcano.sh/v1beta1": ["Queue", "PodGroup"],
            "scheduling.sigs.k8s.io/v1alpha1": ["ElasticQuota"],
        }
        return {
            "kind": "APIGroupDiscoveryList",
            "items": [group(api_version, names) for api_version, names in kinds.items()],
        }

    async def request(self, method: str, path: str, **options: Any) -> bytes:
        plural = path.rpartition("/")[2]
        if plural in self.refused:
            raise ApiError(403, "Forbidden", f"{plural} is forbidden")
        parent = {"quota.scheduling.koordinator.sh/parent": "gone"}
        items: Mapping[str, dict[str, Any]] = {
            "queues": {"metadata": {"name": "q"}, "spec": {"parent": "gone"}},
            "elasticquotas": {"metadata": {"name": "e", "namespace": "n", "labels": parent}, "spec": {}},
            "podgroups": {
                "metadata": {"name": "g", "namespace": "n"},
                "spec": {"minMember": 1, "priorityClassName": "gone"},
            },
            "priorityclasses": {"metadata": {"name": "system-node-critical"}, "value": 5},
        }
        return json.dumps({"metadata": {}, "items": [items[plural]] if plural in items else []}).encode()


def group(api_version: str, kinds: list[str]) -> dict[str, Any]:
    name, _, version = api_version.partition("/")
    resources = [
        {
            "resource": f"{kind.lower()}s",
            "responseKind": {"kind": kind},
            "scope": "Cluster" if kind == "Queue" else "Namespaced",
            "verbs": ["list"],
        }
        for kind in kinds
    ]
    return {"metadata": {"name": name}, "versions": [{"version": version, "resources": resources}]}


async def missing_names(cluster: Cluster, namespace: str | None = None) -> set[str]:
    source = Source(Examiner())
    await read_cluster_objects(cluster, source, namespace)
    said = {each.kind: " ".join(field.message for field in each.fields) for each in source.examiner.found}
    return {kind for kind, words in said.items() if "not found" in words or "does not exist" in words}


async def test_references_to_missing_names_are_reported() -> None:
    assert await missing_names(Cluster()) == {"Queue", "ElasticQuota", "PodGroup"}


async def test_missing_names_are_not_reported_after_an_incomplete_list() -> None:
    assert await missing_names(Cluster("priorityclasses")) == {"Queue", "ElasticQuota"}
    assert await missing_names(Cluster(), "n") == {"Queue", "PodGroup"}


class Workloads(Cluster):
    """Nothing runs. Templates of DaemonSets, ReplicaSets and an operator's kind name Volcano."""

    async def get(self, path: str, params: object = None, *, accept: str = "") -> dict[str, Any]:
        if path == "/api":
            return {"kind": "APIGroupDiscoveryList", "items": []}
        return {"kind": "APIGroupDiscoveryList", "items": [group("ray.io/v1", ["RayCluster"])]}

    async def request(self, method: str, path: str, **options: Any) -> bytes:
        plural = path.rpartition("/")[2]
        if plural in self.refused:
            raise ApiError(403, "Forbidden", f"{plural} is forbidden")
        template = {"spec": {"schedulerName": "volcano", "containers": [{"name": "c"}]}}
        owner = [{"apiVersion": "apps/v1", "kind": "Deployment", "name": "d", "uid": "u"}]
        alone = {"metadata": {"name": "a", "namespace": "n"}, "spec": {"template": template}}
        owned = {**alone, "metadata": {"name": "b", "namespace": "n", "ownerReferences": owner}}
        items: Mapping[str, list[dict[str, Any]]] = {
            "daemonsets": [alone],
            "replicasets": [alone, owned],
            "rayclusters": [{**alone, "spec": {"headGroupSpec": {"template": template}}}],
        }
        return json.dumps({"metadata": {}, "items": items.get(plural, [])}).encode()


async def test_owner_whose_pods_would_use_an_old_scheduler_is_reported_without_pods() -> None:
    source = Source(Examiner())
    await read_cluster_objects(Workloads(), source, None)
    told = {(each.kind, each.name) for each in source.examiner.found}
    assert told == {("DaemonSet", "a"), ("ReplicaSet", "a"), ("RayCluster", "a")}
    steps = summary(source.examiner.found).steps
    assert "phalanx scheduler --scheduler-name phalanx --scheduler-name volcano" in steps


async def test_workloads_that_may_not_be_listed_are_named() -> None:
    source = Source(Examiner())
    await read_cluster_objects(Workloads("daemonsets", "rayclusters"), source, None)
    assert source.missing == [
        "rayclusters.ray.io: rayclusters is forbidden",
        "daemonsets.apps: daemonsets is forbidden",
    ]
