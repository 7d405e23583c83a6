"""An embedded API server with Volcano's kinds, and a webhook that it calls."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest_asyncio

from phalanx.admission.webhook.service import WebhookOptions, WebhookService
from phalanx.cli.installation.manifests import definitions, volcano_queues
from phalanx.kube.auth.config import load_config
from phalanx.kube.client import KubeClient
from phalanx_local.authentication.authenticator import User
from phalanx_local.authentication.kubeconfig import write_private
from phalanx_local.server import ApiServer, ServerOptions

Json = dict[str, Any]

SYSTEM, TEAM = "phalanx-system", "team"
PATHS = {
    "jobs": f"/apis/batch.volcano.sh/v1alpha1/namespaces/{TEAM}/jobs",
    "cronjobs": f"/apis/batch.volcano.sh/v1alpha1/namespaces/{TEAM}/cronjobs",
    "jobflows": f"/apis/flow.volcano.sh/v1alpha1/namespaces/{TEAM}/jobflows",
    "jobtemplates": f"/apis/flow.volcano.sh/v1alpha1/namespaces/{TEAM}/jobtemplates",
    "podgroups": f"/apis/scheduling.volcano.sh/v1beta1/namespaces/{TEAM}/podgroups",
    "queues": "/apis/scheduling.volcano.sh/v1beta1/queues",
    "hypernodes": "/apis/topology.volcano.sh/v1alpha1/hypernodes",
    "pods": f"/api/v1/namespaces/{TEAM}/pods",
}
_KINDS = {
    "jobs": ("batch.volcano.sh", "Job"),
    "cronjobs": ("batch.volcano.sh", "CronJob"),
    "jobflows": ("flow.volcano.sh", "JobFlow"),
    "jobtemplates": ("flow.volcano.sh", "JobTemplate"),
}


class Site:
    """A cluster: `admin` may do everything, `tenant` handles workloads in the namespace `team`."""

    def __init__(self, server: ApiServer, directory: Path, admin: KubeClient, tenant: KubeClient) -> None:
        self.server = server
        self.directory = directory
        self.admin = admin
        self.tenant = tenant

    @contextlib.asynccontextmanager
    async def webhook(self, **options: Any) -> AsyncIterator[WebhookService]:
        """A webhook that the API server calls."""
        service = WebhookService(self.admin, WebhookOptions(**{"listen": "127.0.0.1:0", **options}))
        running = asyncio.create_task(service.run())
        ready = asyncio.create_task(service.ready.wait())
        try:
            await asyncio.wait((running, ready), return_when=asyncio.FIRST_COMPLETED)
            if running.done():
                running.result()
            yield service
        finally:
            ready.cancel()
            service.stop()
            await running


def of_kind(plural: str, name: str = "x", **content: Any) -> Json:
    group, kind = _KINDS.get(plural, ("", ""))
    shown = {"apiVersion": f"{group}/v1alpha1", "kind": kind}
    if plural in ("podgroups", "queues"):
        shown = {
            "apiVersion": "scheduling.volcano.sh/v1beta1",
            "kind": {"podgroups": "PodGroup", "queues": "Queue"}[plural],
        }
    if plural == "hypernodes":
        shown = {"apiVersion": "topology.volcano.sh/v1alpha1", "kind": "HyperNode"}
    if plural == "pods":
        shown = {"apiVersion": "v1", "kind": "Pod"}
    return {**shown, "metadata": {"name": name}, **content}


@cache
def known_definitions() -> list[Json]:
    """Our definitions, read once."""
    return list(definitions())


def _definition(plural: str) -> Json:
    """Return a definition without validation, so that every refusal comes from the webhook."""
    group, kind = _KINDS[plural]
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"plural": plural, "singular": kind.lower(), "kind": kind, "listKind": f"{kind}List"},
            "versions": [
                {"name": "v1alpha1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
            ],
        },
    }


@pytest_asyncio.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    users = {name: User(name, ("devs", "system:authenticated")) for name in ("jane", "monitoring")}
    server = ApiServer(ServerOptions(users=users))
    await server.start()
    server.write_kubeconfig(tmp_path / "admin")
    config = server.kubeconfig()
    config["users"][0]["user"] = {"token": "jane"}
    write_private(tmp_path / "jane", config)
    async with KubeClient(load_config(str(tmp_path / "admin"))) as admin:
        crds = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
        known = {item["metadata"]["name"]: item for item in known_definitions()}
        wanted = [
            item for name, item in known.items() if name.endswith(("scheduling.volcano.sh", "topology.volcano.sh"))
        ]
        for definition in (*wanted, *map(_definition, _KINDS)):
            await admin.create(crds, definition)
        for queue in volcano_queues():
            await admin.create(PATHS["queues"], queue)
        for namespace in (SYSTEM, TEAM):
            await admin.create("/api/v1/namespaces", {"metadata": {"name": namespace}})
        rbac = "/apis/rbac.authorization.k8s.io/v1"
        workloads = [group for group, _ in _KINDS.values()]
        rules = [
            {"apiGroups": [*workloads, "scheduling.volcano.sh"], "resources": ["*"], "verbs": ["*"]},
            {"apiGroups": [""], "resources": ["pods"], "verbs": ["*"]},
        ]
        await admin.create(f"{rbac}/namespaces/{TEAM}/roles", {"metadata": {"name": "all"}, "rules": rules})
        binding = {
            "metadata": {"name": "jane"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "all"},
            "subjects": [{"kind": "User", "name": "jane", "apiGroup": "rbac.authorization.k8s.io"}],
        }
        await admin.create(f"{rbac}/namespaces/{TEAM}/rolebindings", binding)
        async with KubeClient(load_config(str(tmp_path / "jane"))) as tenant:
            yield Site(server, tmp_path, admin, tenant)
    await server.stop()
