"""The external dispatcher of MultiKueue, over HTTP, beside a Kueue that is played here."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from phalanx.hub.multikueue.nominations import ADMISSION_CHECKS, CLUSTERS, CONFIGS, MANAGER, WORKLOADS
from phalanx.hub.multikueue.service import MultiKueueOptions, MultiKueueService
from phalanx.kube.auth.config import load_config
from phalanx.kube.client import KubeClient, PatchType
from phalanx.kube.core_resources import SECRETS
from phalanx.kube.paths import Resource
from phalanx.scheduling.policy.loader import load_policy
from tests.hub.federation import HUB_NAMESPACE, NAMESPACE, Federation, Json, federation, until

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.asyncio, pytest.mark.timeout(300)]


def definition(resource: Resource) -> Json:
    """Return the relevant part of one of Kueue's definitions, with its rule on names and cluster."""
    anything: Json = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    conditions = {
        "type": "array",
        "items": anything | {"required": ["type"], "properties": {"type": {"type": "string"}}},
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["type"],
    }
    names = {"type": "array", "items": {"type": "string"}, "maxItems": 20, "x-kubernetes-list-type": "atomic"}
    rule = "!has(self.clusterName) || !has(self.nominatedClusterNames) || size(self.nominatedClusterNames) == 0"
    status: Json = {
        **anything,
        "properties": {"conditions": conditions, "nominatedClusterNames": names, "clusterName": {"type": "string"}},
        "x-kubernetes-validations": [{"rule": rule, "message": "either clusterName or nominatedClusterNames"}],
    }
    schema = {"type": "object", "properties": {"spec": anything, "status": status}}
    version = {
        "name": resource.version,
        "served": True,
        "storage": True,
        "subresources": {"status": {}},
        "schema": {"openAPIV3Schema": schema},
    }
    singular = resource.kind.lower()
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{resource.plural}.{resource.group}"},
        "spec": {
            "group": resource.group,
            "scope": "Namespaced" if resource.namespaced else "Cluster",
            "names": {
                "kind": resource.kind,
                "listKind": f"{resource.kind}List",
                "plural": resource.plural,
                "singular": singular,
            },
            "versions": [version],
        },
    }


@contextlib.asynccontextmanager
async def manager(folder: Path) -> AsyncIterator[Federation]:
    """A manager cluster with MultiKueue's objects about east, which is small, north and west; it runs."""
    definitions = [definition(each) for each in (WORKLOADS, ADMISSION_CHECKS, CONFIGS, CLUSTERS)]
    async with federation(folder, definitions=definitions) as three:
        client = three.hub.client
        for name, site in three.members.items():
            await site.node("n1", "1" if name == "east" else "16")
            text = base64.b64encode(json.dumps(site.server.kubeconfig()).encode()).decode()
            secret = {"metadata": {"name": f"{name}-secret"}, "data": {"kubeconfig": text}}
            await client.create(SECRETS.path(HUB_NAMESPACE), secret)
            source = {"clusterSource": {"kubeConfig": {"location": f"{name}-secret", "locationType": "Secret"}}}
            await client.create(CLUSTERS.path(), made(CLUSTERS, name, source))
        await client.create(CONFIGS.path(), made(CONFIGS, "three", {"clusters": ["east", "north", "west"]}))
        check = {"controllerName": "kueue.x-k8s.io/multikueue", "parameters": {"name": "three"}}
        await client.create(ADMISSION_CHECKS.path(), made(ADMISSION_CHECKS, "many", check))
        own = KubeClient(load_config(str(three.hub.kubeconfig)))
        options = MultiKueueOptions(kueue_namespace=HUB_NAMESPACE, namespace=HUB_NAMESPACE)
        service = MultiKueueService(own, options, load_policy())
        running = asyncio.create_task(service.run())
        try:
            yield three
        finally:
            service.stop()
            await running
            await own.close()


def made(resource: Resource, name: str, spec: Json) -> Json:
    return {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "metadata": {"name": name},
        "spec": spec,
    }


async def submit(three: Federation, name: str, cpu: str) -> None:
    """Create Kueue's objects of a job, with the state that waits for a nomination."""
    container = {"name": "main", "image": "train", "resources": {"requests": {"cpu": cpu}}}
    pods = [{"name": "main", "count": 2, "template": {"spec": {"containers": [container]}}}]
    await three.hub.client.create(WORKLOADS.path(NAMESPACE), made(WORKLOADS, name, {"podSets": pods}))
    await applied(three, name, {"conditions": [{"type": "QuotaReserved", "status": "True"}]})


async def applied(three: Federation, name: str, status: Json) -> Json:
    """Write as Kueue does: by server-side apply as its manager."""
    checks = [{"name": "many", "state": "Pending"}]
    document = {**made(WORKLOADS, name, {}), "status": {"admissionChecks": checks, **status}}
    document.pop("spec")
    answer: Json = await three.hub.client.patch(
        WORKLOADS.path(NAMESPACE, name, "status"), document, PatchType.APPLY, field_manager=MANAGER, force=True
    )
    return answer


async def workload(three: Federation, name: str) -> Json:
    found: Json = await three.hub.client.get(WORKLOADS.path(NAMESPACE, name))
    return found


async def test_the_cluster_that_starts_it_first_is_nominated_and_kueue_takes_it_from_there(
    tmp_path: Path,
) -> None:
    async with manager(tmp_path) as three:
        await submit(three, "train", "4")

        async def names() -> Any:
            return ((await workload(three, "train")).get("status") or {}).get("nominatedClusterNames")

        # East never has room for it; the first of the remaining clusters by name is chosen.
        assert await until(names, "train is nominated", await workload(three, "train")) == ["north"]
        status = (await workload(three, "train"))["status"]
        assert status["admissionChecks"] == [{"name": "many", "state": "Pending"}]
        assert status["conditions"][0]["type"] == "QuotaReserved"
        # Kueue has chosen: its apply omits the nominations, which removes them.
        reserved = [{"type": "QuotaReserved", "status": "True"}]
        answer = await applied(three, "train", {"conditions": reserved, "clusterName": "north"})
        assert "nominatedClusterNames" not in answer["status"]


async def test_cluster_where_the_job_can_never_start_is_not_nominated_and_an_event_says_why(tmp_path: Path) -> None:
    async with manager(tmp_path) as three:
        await submit(three, "huge", "400")

        async def told() -> str:
            events = await three.hub.client.list_all(f"/apis/events.k8s.io/v1/namespaces/{NAMESPACE}/events")
            return "".join(each["note"] for each in events["items"] if each["reason"] == "NotNominated")

        said = await until(told, "an event tells why")
        assert all(name in said for name in ("east", "north", "west"))
        assert "nominatedClusterNames" not in (await workload(three, "huge"))["status"]
