"""The admission policies of `phalanx install --policies`, on an API server that enforces them.

The tenants here have careless roles: the policies have to refuse what RBAC usually refuses.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from phalanx.cli.installation.admission import policies
from phalanx.cli.installation.install import install_policies
from phalanx.kube.client import PatchType
from phalanx.kube.errors import ApiError
from phalanx.kube.own_objects import LABELS
from phalanx.kube.paths import Resource
from tests.attacks.arena import MARK, QUEUE_NAME, VOLCANO, X_K8S, Arena, Tenant, made, member
from tests.e2e.test_devices import gpu_node, policy, told, wants
from tests.e2e.world import PODS, Cluster, World, pod

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="session")]

ADMISSION = "/apis/admissionregistration.k8s.io/v1"
NAMESPACES = Resource("", "v1", "namespaces", "Namespace", namespaced=False)
QUOTAS = Resource("scheduling.sigs.k8s.io", "v1alpha1", "elasticquotas", "ElasticQuota")
QUOTA_NAME = "quota.scheduling.koordinator.sh/name"
_PROBE = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "probe"}}


@pytest_asyncio.fixture(scope="module", loop_scope="session", autouse=True)
async def guarded(cluster: Cluster) -> AsyncIterator[None]:
    """Install the policies, and delete them for the next test."""
    manifests = policies(["phalanx"], LABELS)
    await install_policies(cluster.client, ["phalanx"])
    # API servers look for new policies now and then.
    await World(cluster).noticed(3)
    yield
    for plural in ("validatingadmissionpolicybindings", "validatingadmissionpolicies"):
        for name in {manifest["metadata"]["name"] for manifest in manifests}:
            await cluster.client.delete(f"{ADMISSION}/{plural}/{name}")
    await World(cluster).noticed(3)


async def refused(write: Any, words: str) -> None:
    with pytest.raises(ApiError, match=words) as refusal:
        await write
    assert refusal.value.status == 403
    assert "ValidatingAdmissionPolicy" in refusal.value.message


async def careless(arena: Arena) -> Tenant:
    """Grant writes that no tenant should have, in its namespace and on its namespace."""
    tenant = await arena.tenant(also=["podgroups/status", "elasticquotas", "elasticquotas/status"])
    everything = {"apiGroups": [""], "resources": ["pods/binding", "pods/status"], "verbs": ["*"]}
    await arena.grant(tenant, [everything])
    own = {"apiGroups": [""], "resources": ["namespaces"], "resourceNames": [tenant.namespace], "verbs": ["*"]}
    await arena.grant(tenant, [own], everywhere=True)
    return tenant


RESERVED = [
    MARK,
    "phalanx.dev/device-plan",
    "phalanx.dev/held-room",
    "volcano.sh/vgpu-ids-new",
    "scheduling.koordinator.sh/device-allocated",
]


@pytest.mark.parametrize("key", [*RESERVED, "kubernetes.io/config.source"])
async def test_pod_with_fields_of_the_scheduler_is_refused(arena: Arena, key: str) -> None:
    tenant = await careless(arena)
    await refused(tenant.pod("p", annotations={key: "x"}), "remove it")
    await tenant.pod("p")
    for status in (False, True):
        patch = tenant.patch(PODS, "p", {"metadata": {"annotations": {key: "x"}}}, status=status)
        await refused(patch, "is reserved for the scheduler; do not change it")


async def test_pods_of_other_schedulers_are_none_of_our_business(arena: Arena) -> None:
    tenant = await careless(arena)
    notes = {**dict.fromkeys(RESERVED, "x"), QUEUE_NAME: "any"}
    await tenant.pod("p", scheduler="koord-scheduler", annotations=notes, labels={QUOTA_NAME: "any"})
    await tenant.patch(PODS, "p", {"metadata": {"annotations": {MARK: None, QUEUE_NAME: "other"}}})


@pytest.mark.parametrize("key", ["phalanx.dev/once-satisfied", "volcano.sh/job-allocated-hypernode"])
async def test_group_with_fields_of_the_scheduler_is_refused(arena: Arena, key: str) -> None:
    tenant = await careless(arena)
    await refused(tenant.group("g", 2, annotations={key: "true"}), "remove it")
    await tenant.group("g", 2)
    await refused(tenant.patch(X_K8S, "g", {"metadata": {"annotations": {key: "true"}}}), "do not change it")


async def test_fields_written_by_the_scheduler_cannot_be_removed(arena: Arena, tmp_path: Path) -> None:
    await gpu_node(arena, "n1", "GPU-a")
    await arena.scheduler(config=policy(tmp_path))
    tenant = await careless(arena)
    await tenant.group("g", 2)
    await tenant.pods("g-0", "g-1", **wants(4000), **member("g"))
    await tenant.until_bound("g-0", "g-1")
    assert sorted(await told(tenant)) == ["g-0", "g-1"]
    for key in (MARK, "volcano.sh/vgpu-ids-new"):
        taken = tenant.patch(PODS, "g-0", {"metadata": {"annotations": {key: None}}})
        await refused(taken, "do not change it")
    # Any other condition is allowed.
    await tenant.patch(PODS, "g-0", {"metadata": {"annotations": {"note": "mine"}, "labels": {"a": "b"}}})
    await arena.unharmed()


async def test_a_device_plugin_may_where_it_is_let(arena: Arena) -> None:
    tenant = await careless(arena)
    await tenant.pod("p")
    await arena.grant(
        tenant,
        [{"apiGroups": ["phalanx.dev"], "resources": ["schedulingresults"], "verbs": ["write"]}],
        everywhere=True,
    )
    await arena.noticed(1)
    await tenant.patch(PODS, "p", {"metadata": {"annotations": {"volcano.sh/bind-phase": "success"}}})


async def test_a_binding_carries_no_mark_that_is_not_ours(arena: Arena) -> None:
    await arena.node("n1")
    tenant = await careless(arena)
    await tenant.pod("p")
    target = {"apiVersion": "v1", "kind": "Node", "name": f"{arena.name}-n1"}
    binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "p", "annotations": {MARK: "x"}}}
    path = f"{PODS.path(tenant.namespace, 'p')}/binding"
    await refused(tenant.client.create(path, {**binding, "target": target}), "bind without it")
    del binding["metadata"]["annotations"]  # type: ignore[attr-defined]
    await tenant.client.create(path, {**binding, "target": target})


async def test_status_is_writable_only_with_the_right_in_all_namespaces(arena: Arena) -> None:
    tenant = await careless(arena)
    await tenant.group("g", 2)
    await tenant.group("v", 2, queue="default")
    for kind, name, phase in ((X_K8S, "g", "Running"), (VOLCANO, "v", "Inqueue")):
        await refused(tenant.patch(kind, name, {"status": {"phase": phase}}, status=True), "do not change it")
        await tenant.patch(kind, name, {"spec": {"minMember": 3}})


async def test_queue_is_usable_only_where_an_administrator_allows_it(arena: Arena) -> None:
    tenant = await careless(arena)
    queue, other = await arena.queue(), await arena.queue()
    notes = {QUEUE_NAME: queue}
    words = f"queue {queue} is not allowed in this namespace; ask an administrator"
    await refused(tenant.group("g", 1, queue=queue), words)
    await refused(tenant.pod("p", annotations=notes), words)
    await refused(tenant.pod("p", labels=notes), words)
    await tenant.pod("p")
    await refused(tenant.patch(PODS, "p", {"metadata": {"annotations": notes}}), words)
    listed = {"metadata": {"annotations": {"phalanx.dev/queues": f"any, {queue}"}}}
    await refused(
        tenant.client.patch(NAMESPACES.path(None, tenant.namespace), listed, PatchType.MERGE), "administrator"
    )
    await arena.client.patch(NAMESPACES.path(None, tenant.namespace), listed, PatchType.MERGE)
    await arena.noticed(1)  # admission sees namespaces through a watch
    await tenant.group("g", 1, queue=queue)
    await tenant.patch(PODS, "p", {"metadata": {"annotations": notes}})
    await refused(tenant.patch(VOLCANO, "g", {"spec": {"queue": other}}), f"queue {other} is not allowed")
    rule = {
        "apiGroups": ["scheduling.volcano.sh"],
        "resources": ["queues"],
        "resourceNames": [other],
        "verbs": ["use"],
    }
    await arena.grant(tenant, [rule], everywhere=True)
    await arena.noticed(1)
    await tenant.patch(VOLCANO, "g", {"spec": {"queue": other}})
    await tenant.group("default", 1, queue="default")


async def test_quotas_are_an_administrators(arena: Arena) -> None:
    tenant = await careless(arena)
    quota = {**made(QUOTAS, "q"), "spec": {"max": {"cpu": 1000}}}
    await refused(tenant.make(quota), "ask an administrator to write it")
    await arena.make({**quota, "metadata": {"name": "q", "namespace": tenant.namespace}})
    await refused(tenant.patch(QUOTAS, "q", {"spec": {"max": {"cpu": 2000}}}), "ask an administrator to write it")
    await refused(tenant.delete(QUOTAS, "q"), "ask an administrator to write it")


async def test_a_pod_is_charged_to_a_quota_of_its_namespace(arena: Arena) -> None:
    tenant = await careless(arena)
    await refused(
        tenant.pod("p", labels={QUOTA_NAME: "koordinator-system-quota"}), "is not allowed in this namespace; remove"
    )
    await tenant.pod("p", labels={QUOTA_NAME: tenant.namespace})
    await refused(
        tenant.patch(PODS, "p", {"metadata": {"labels": {QUOTA_NAME: "rich"}}}), "is not allowed in this namespace"
    )
    listed = {"metadata": {"annotations": {"phalanx.dev/quotas": "rich"}}}
    await arena.client.patch(NAMESPACES.path(None, tenant.namespace), listed, PatchType.MERGE)
    await arena.noticed(1)
    await tenant.patch(PODS, "p", {"metadata": {"labels": {QUOTA_NAME: "rich"}}})


@pytest.mark.parametrize("place", ["annotations", "labels"])
async def test_namespace_weight_and_queue_are_writable_only_by_administrators(arena: Arena, place: str) -> None:
    tenant = await careless(arena)
    path = NAMESPACES.path(None, tenant.namespace)
    for key in ("volcano.sh/namespace.weight", "phalanx.dev/quotas", "scheduling.volcano.sh/queue-name"):
        patch = {"metadata": {place: {key: "100"}}}
        await refused(tenant.client.patch(path, patch, PatchType.MERGE), "is reserved for administrators")
    await tenant.client.patch(path, {"metadata": {place: {"team": "a"}}}, PatchType.MERGE)


async def test_the_scheduler_itself_is_not_kept_from_its_work(arena: Arena) -> None:
    await arena.node("n1")
    await arena.scheduler()
    tenant = await arena.tenant()
    queue = await arena.queue()
    listed = {"metadata": {"annotations": {"phalanx.dev/queues": queue}}}
    await arena.client.patch(NAMESPACES.path(None, tenant.namespace), listed, PatchType.MERGE)
    await arena.noticed(1)
    await tenant.group("g", 2, queue=queue)
    await tenant.pods("g-0", "g-1", **member("g"))
    await tenant.until_bound("g-0", "g-1")
    bound = await tenant.get(PODS, "g-0")
    assert MARK in bound["metadata"]["annotations"]
    await tenant.until_status(VOLCANO, "g", phase="Running")
    await refused(tenant.make(await tenant.copied("g-0", "g-2")), "also from a copy")
    await tenant.make(pod("g-2", **member("g")))
    await tenant.until_bound("g-2")
    await arena.unharmed()
