"""Labels and objects by which a tenant would charge another account, or none."""

from __future__ import annotations

from typing import Any

import pytest

from phalanx.kube.errors import ApiError
from tests.attacks.arena import Arena
from tests.e2e.world import Object

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="session")]

QUOTA = "quota.scheduling.koordinator.sh"
ADMINISTRATION = "koordinator-system"


async def koordinator_quota(arena: Arena, name: str, namespaces: list[str], **spec: Any) -> str:
    """A quota of a tree, in a namespace that administrators alone write to."""
    try:
        await arena.client.create(
            "/api/v1/namespaces",
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": ADMINISTRATION}},
        )
    except ApiError as error:
        assert error.status == 409  # noqa: PT017 - it is there already
    document = elastic_quota(f"{arena.name}-{name}", namespaces, **spec)
    document["metadata"]["namespace"] = ADMINISTRATION
    await arena.make(document)
    return f"{arena.name}-{name}"


def elastic_quota(name: str, namespaces: list[str], **spec: Any) -> Object:
    listed = '["' + '", "'.join(namespaces) + '"]'
    return {
        "apiVersion": "scheduling.sigs.k8s.io/v1alpha1",
        "kind": "ElasticQuota",
        "metadata": {"name": name, "annotations": {f"{QUOTA}/namespaces": listed}},
        "spec": spec,
    }


@pytest.mark.slow_but_first
@pytest.mark.parametrize(
    "named", ["nobody's", "koordinator-system-quota", "koordinator-default-quota", "another's"]
)
async def test_a_quota_of_ones_choice_does_not_escape_the_namespaces_own(arena: Arena, named: str) -> None:
    await arena.node("n1", cpu="8")
    tenant, other = await arena.tenant(), await arena.tenant("other")
    await koordinator_quota(arena, "own", [tenant.namespace], min={"cpu": 2}, max={"cpu": 2})
    rich = await koordinator_quota(arena, "rich", [other.namespace], min={"cpu": 6}, max={"cpu": 100})
    await arena.scheduler()
    name = {"nobody's": "nobodys", "another's": rich}.get(named, named)
    await tenant.pods(*(f"p-{number}" for number in range(6)), labels={f"{QUOTA}/name": name})
    await tenant.stays_at_most(2)
    await arena.unharmed()


async def test_a_quota_of_ones_choice_does_not_escape_a_flat_one(arena: Arena) -> None:
    await arena.node("n1", cpu="8")
    tenant = await arena.tenant()
    flat = {
        "apiVersion": "scheduling.x-k8s.io/v1alpha1",
        "kind": "ElasticQuota",
        "metadata": {"name": "quota", "namespace": tenant.namespace},
        "spec": {"min": {"cpu": 8}, "max": {"cpu": 2}},
    }
    await arena.make(flat)
    await arena.scheduler()
    await tenant.pods(*(f"p-{number}" for number in range(4)), labels={f"{QUOTA}/name": "koordinator-system-quota"})
    await tenant.until_bound_count(2)
    await tenant.stays_at_most(2)
    await arena.unharmed()


async def test_a_quota_of_a_tenants_own_does_not_claim_the_namespace_of_another(arena: Arena) -> None:
    """The tenant's role allows writing quotas."""
    await arena.node("n1", cpu="8")
    tenant, other = await arena.tenant(also=["elasticquotas"]), await arena.tenant("other")
    await tenant.make(elastic_quota(f"{arena.name}-grab", [other.namespace], min={"cpu": 0}, max={"cpu": 0}))
    await arena.scheduler()
    await other.pods("o-0", "o-1")
    await other.until_bound("o-0", "o-1")
    await arena.unharmed()


async def test_pods_with_a_node_chosen_by_their_tenant_are_charged(arena: Arena) -> None:
    await arena.node("n1", cpu="16")
    tenant = await arena.tenant()
    await koordinator_quota(arena, "own", [tenant.namespace], min={"cpu": 3}, max={"cpu": 3})
    await arena.scheduler()
    await tenant.pods("own-0", "own-1", nodeName=f"{arena.name}-n1")
    await tenant.pods("p-0", "p-1", "p-2")
    await tenant.until_bound_count(1, "p-")
    await tenant.stays_at_most(1, "p-")
    await arena.unharmed()
