"""Users with client certificates are answered by the aggregated API, on the path of the API server."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from phalanx.cli.installation.manifests import object_path
from phalanx.cli.installation.visibility_manifests import visibility_access, visibility_service
from phalanx.dashboard.aggregated.names import API_SERVICE, GROUP_VERSION
from phalanx.dashboard.aggregated.server import AggregatedOptions
from phalanx.kube.auth.config import load_config
from phalanx.kube.client import KubeClient, PatchType
from tests.dashboard.cluster import Page, Site, until

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.e2e]

ANSWERS = f"/apis/{GROUP_VERSION}/namespaces/{{}}/answers/{{}}"


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def aggregated(site: Site) -> AsyncIterator[Page]:
    """Page with the aggregated API, which the API server forwards to."""
    await apply(site, visibility_access("phalanx-system"))
    async with site.dashboard("token", aggregated=AggregatedOptions("127.0.0.1", 0)) as page:
        await apply(site, visibility_service("phalanx-system", f"127.0.0.1:{page.served.aggregated_port}"))
        await until(lambda: is_available(site), "an available APIService")
        yield page


async def apply(site: Site, manifests: list[dict[str, Any]]) -> None:
    for manifest in manifests:
        path = object_path(manifest)
        await site.client.patch(path, manifest, PatchType.APPLY, field_manager="phalanx", force=True)


async def is_available(site: Site) -> bool:
    found = await site.client.get(f"/apis/apiregistration.k8s.io/v1/apiservices/{API_SERVICE}")
    conditions = (found.get("status") or {}).get("conditions") or []
    return any(entry["status"] == "True" for entry in conditions)


@contextlib.asynccontextmanager
async def tenant(site: Site, namespace: str) -> AsyncIterator[KubeClient]:
    """Client of the tenant of a namespace, with a certificate and no token."""
    async with KubeClient(load_config(str(certified(site, namespace)))) as client:
        yield client


def certified(site: Site, namespace: str) -> Path:
    file = site.directory / f"{namespace}-certificate.kubeconfig"
    file.write_text(json.dumps(site.server.certified_kubeconfig(namespace)))
    return file


async def test_why_of_a_user_with_a_certificate_is_answered(site: Site, aggregated: Page) -> None:
    async with tenant(site, "ours") as client:
        found = await client.get(ANSWERS.format("ours", "why"), {"name": "impossible"})
    assert (found["apiVersion"], found["kind"]) == (GROUP_VERSION, "Answer")
    assert found["metadata"]["namespace"] == "ours"
    assert found["answer"]["reason"] == "NotEnoughResources"
