"""Fields that only schedulers and controllers may write:

RBAC refuses tenants, as it does outside of their namespaces.
"""

from __future__ import annotations

from typing import Any

import pytest

from phalanx.kube.client import PatchType
from phalanx.kube.errors import ApiError
from phalanx.kube.paths import Resource
from tests.attacks.arena import NATIVE, QUEUE, VOLCANO, X_K8S, Arena
from tests.e2e.world import NODES, PODS

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="session")]

LEASES = Resource("coordination.k8s.io", "v1", "leases", "Lease")
CONFIG_MAPS = Resource("", "v1", "configmaps", "ConfigMap")
SECRETS = Resource("", "v1", "secrets", "Secret")
NAMESPACES = Resource("", "v1", "namespaces", "Namespace", namespaced=False)
QUOTAS = Resource("scheduling.x-k8s.io", "v1alpha1", "elasticquotas", "ElasticQuota")
CLAIMS = Resource("resource.k8s.io", "v1", "resourceclaims", "ResourceClaim")

# Name of the patch -> (its path, with {own} for the tenant's namespace and {world} for the test's name; the
# patch).
WRITES: dict[str, tuple[str, dict[str, Any]]] = {
    "a nomination": (f"{PODS.path('{own}', 'p')}/status", {"status": {"nominatedNodeName": "n1"}}),
    "a disruption mark": (
        f"{PODS.path('{own}', 'p')}/status",
        {"status": {"conditions": [{"type": "DisruptionTarget", "status": "True"}]}},
    ),
    "a usage record": (CONFIG_MAPS.path("kube-system", "phalanx-usage-0"), {"data": {"usage.json": "{}"}}),
    "the signing keys": (SECRETS.path("kube-system", "phalanx-signing-keys"), {"data": {"1": "AAAA"}}),
    "the lease": (LEASES.path("kube-system", "phalanx-scheduler"), {"spec": {"holderIdentity": "me"}}),
    "the state of a queue": (f"{QUEUE.path(None, '{world}-q')}/status", {"status": {"state": "Closed"}}),
    "a queue": (QUEUE.path(None, "{world}-q"), {"spec": {"weight": 100}}),
    "a node's cards": (
        NODES.path(None, "{world}-n1"),
        {"metadata": {"annotations": {"volcano.sh/node-vgpu-register": ""}}},
    ),
    "its namespace's weight": (
        NAMESPACES.path(None, "{own}"),
        {"metadata": {"annotations": {"volcano.sh/namespace.weight": "100"}}},
    ),
    "its own quota": (QUOTAS.path("{own}", "quota"), {"spec": {"max": {"cpu": 1000}}}),
    "what a quota uses": (f"{QUOTAS.path('{own}', 'quota')}/status", {"status": {"used": {"cpu": "0"}}}),
    "an admission": (f"{VOLCANO.path('{own}', 'g')}/status", {"status": {"phase": "Inqueue"}}),
    "a group's progress": (f"{X_K8S.path('{own}', 'g')}/status", {"status": {"phase": "Running"}}),
    "that a group was scheduled": (
        f"{NATIVE.path('{own}', 'g')}/status",
        {"status": {"conditions": [{"type": "PodGroupScheduled", "status": "True"}]}},
    ),
    "devices of a claim": (f"{CLAIMS.path('{own}', 'c')}/status", {"status": {"allocation": {}}}),
    "pods of others": (PODS.path("default", "p"), {"metadata": {"labels": {"a": "b"}}}),
}


@pytest.mark.parametrize("what", WRITES)
async def test_a_tenant_may_not_write(arena: Arena, what: str) -> None:
    tenant = await arena.tenant()
    path, patch = WRITES[what]
    path = path.replace("{own}", tenant.namespace).replace("{world}", arena.name)
    with pytest.raises(ApiError) as refusal:
        await tenant.client.patch(path, patch, PatchType.MERGE)
    assert refusal.value.status == 403


async def test_a_tenant_may_not_bind(arena: Arena) -> None:
    await arena.node("n1")
    tenant = await arena.tenant()
    await tenant.pod("p")
    binding = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": "p"},
        "target": {"apiVersion": "v1", "kind": "Node", "name": f"{arena.name}-n1"},
    }
    with pytest.raises(ApiError) as refusal:
        await tenant.client.create(f"{PODS.path(tenant.namespace, 'p')}/binding", binding)
    assert refusal.value.status == 403


async def test_an_admission_that_no_queue_gave_does_not_pass_its_capability(arena: Arena) -> None:
    """The tenant's role allows writing statuses of groups."""
    await arena.node("n1", cpu="8")
    await arena.scheduler()
    tenant = await arena.tenant(also=["podgroups/status"])
    queue = await arena.queue(capability={"cpu": 2})
    await tenant.group("g", 4, queue=queue)
    await tenant.patch(VOLCANO, "g", {"status": {"phase": "Inqueue"}}, status=True)
    await tenant.pods(*(f"g-{number}" for number in range(4)), annotations={"scheduling.k8s.io/group-name": "g"})
    await tenant.stays_at_most(0)
    await arena.unharmed()
