"""Sources of the queue and the quota of a gang or pod, as the dialects read them: each is checked by the
webhook.

A new key or field that a dialect reads without a check fails here.
"""

from __future__ import annotations

import ast
import re
from collections.abc import AsyncIterator, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import pytest
import pytest_asyncio

import phalanx.dialects
from phalanx.admission.queue_rights import queues_named
from phalanx.admission.webhook.routes import ROUTES
from phalanx.cli.installation.admission import policies
from phalanx.cli.installation.install import install_policies
from phalanx.dialects.core import PodObject, decode_pod
from phalanx.dialects.intake import Intake
from phalanx.dialects.kinds import ServedKind
from phalanx.dialects.options import DialectOptions
from phalanx.kube.client import PatchType
from phalanx.model.account import DEFAULT_QUEUE
from phalanx.model.events import GangUpdated, PodUpdated
from phalanx.model.gang import GangKey
from phalanx.reports.gangs.gang_list import gang_entries
from phalanx.reports.jobs.job_report import JobReader
from phalanx.views.promises import Promises
from tests.admission.conftest import PATHS, TEAM, Site, known_definitions, of_kind
from tests.admission.test_webhook_service import CONTAINERS, KEY, open_queue, refusal
from tests.dialects.objects import DIALECTS, group, pod_document

Json = dict[str, Any]

QUOTA = "quota.scheduling.koordinator.sh/name"
#: Keys that other schedulers use, read here or not.
FOREIGN_KEYS = {
    "volcano.sh/queue-name",
    "kueue.x-k8s.io/queue-name",
    "kai.scheduler/queue",
    "runai/queue",
    "scheduling.k8s.io/queue",
    "phalanx.dev/queue",
    "phalanx.dev/queues",
    "phalanx.dev/quotas",
    "yunikorn.apache.org/queue",
    "queue",
}
KINDS = [
    ServedKind(each.kind.group, version, each.kind.plural, each.kind.kind)
    for each in DIALECTS.groups.values()
    for version in each.kind.versions
]
#: In everyday runs one version of each API group.
EACH_KIND = [
    pytest.param(
        kind,
        id=f"{kind.group}/{kind.version}",
        marks=[pytest.mark.slow] if kind.group in {other.group for other in KINDS[:number]} else [],
    )
    for number, kind in enumerate(KINDS)
]
#: Fields that make pods members of the group `g`, per kind.
MEMBERS: list[Json] = [
    {"labels": {"scheduling.x-k8s.io/pod-group": "g", "pod-group.scheduling.sigs.k8s.io": "g"}},
    {"annotations": {"scheduling.k8s.io/group-name": "g"}},
    {"schedulingGroup": {"podGroupName": "g"}},
    {"workloadRef": {"name": "g", "podGroup": "part"}},
]
_KEY = re.compile(r"[a-z0-9.-]+/[A-Za-z0-9][\w./-]*")


@cache
def keys() -> list[str]:
    """Return all possible keys of labels and annotations in the dialects, and those of other schedulers."""
    folder = Path(phalanx.dialects.__path__[0])
    texts = {
        node.value
        for file in folder.rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text("utf-8")))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    return sorted({each for each in texts if _KEY.fullmatch(each)} | FOREIGN_KEYS)


def charged(kind: ServedKind, document: Json, **details: Any) -> Iterator[tuple[str, str]]:
    """The queue and the quota to which the group `g`, or else a pod of it, is charged, by each way to be in it."""
    for member in MEMBERS:
        both: dict[str, Any] = {
            key: {**member.get(key, {}), **details.get(key, {})}
            for key in ("labels", "annotations")
            if key in member or key in details
        }
        fields = {key: value for key, value in member.items() if key not in both}
        door = Intake(["phalanx"])
        events = door.group(kind, document)
        events += door.pod(pod_of(pod_document("a", schedulerName="phalanx", **fields, **both)))
        gangs = [each.gang for each in events if isinstance(each, GangUpdated)]
        pods = [each.pod for each in events if isinstance(each, PodUpdated)]
        queues = {each.queue for each in gangs} | {each.queue for each in pods if not each.gang}
        yield from ((queue, pods[-1].quota) for queue in queues)
        if gangs and pods[-1].gang:
            assert gangs[-1].key == GangKey("default", pods[-1].gang)


def pod_of(document: Json) -> PodObject:

    return decode_pod(msgspec.json.encode(document))


def a_group(kind: ServedKind, **spec: Any) -> Json:
    parts = [{"name": "part", "policy": {"gang": {"minCount": 1}}}]
    return group(minMember=1, schedulingPolicy={"gang": {"minCount": 1}}, podGroups=parts, **spec)


def webhook_asks(resource: str) -> bool:
    return any(resource in route.resources for route in ROUTES if route.names_queues)


def policy_asks(resource: str) -> bool:
    (policy,) = (
        each
        for each in policies(["phalanx"], {})
        if (each["kind"], each["metadata"]["name"]) == ("ValidatingAdmissionPolicy", "phalanx-queues")
    )
    plural, _, group = resource.partition(".")
    rules = policy["spec"]["matchConstraints"]["resourceRules"]
    return any(group in rule["apiGroups"] and plural in rule["resources"] for rule in rules)


@pytest.mark.parametrize("kind", EACH_KIND)
def test_every_key_that_charges_a_group_is_checked(kind: ServedKind) -> None:
    """None is so far: a group names its queue in its spec, or leaves it to its pods and its namespace."""
    resource = f"{kind.plural}.{kind.group}"
    assert {KEY, QUOTA} <= set(keys())
    for key in keys():
        document = a_group(kind)
        document["metadata"].update(labels={key: "rich"}, annotations={key: "rich"})
        found = set(charged(kind, document))
        if found == {(DEFAULT_QUEUE, "")}:
            continue
        assert queues_named(resource, document) == {"rich"}, (key, found)
        assert webhook_asks(resource), key
        assert policy_asks(resource), key


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: f"{kind.group}/{kind.version}")
def test_every_field_that_charges_a_group_is_checked(kind: ServedKind) -> None:
    resource = f"{kind.plural}.{kind.group}"
    fields = ["queue", "queueName", "quota", "quotaName"]
    for field in fields:
        document = a_group(kind, **{field: "rich"})
        if set(charged(kind, document)) == {(DEFAULT_QUEUE, "")}:
            continue
        assert queues_named(resource, document) == {"rich"}, field
        assert webhook_asks(resource), field
        assert policy_asks(resource), field


@pytest.mark.parametrize("place", ["labels", "annotations"])
def test_every_key_that_charges_pods_is_checked(place: str) -> None:
    """Pods on their own, and for groups that leave it to them."""
    (kind,) = (each for each in KINDS if each.group == "scheduling.x-k8s.io")
    by_queue, by_quota = set(), set()
    for key in keys():
        for queue, quota in charged(kind, a_group(kind), **{place: {key: "rich"}}):
            by_queue |= {key} if queue != DEFAULT_QUEUE else set()
            by_quota |= {key} if quota else set()
    assert (
        by_queue == {key for key in keys() if queues_named("pods", {"metadata": {place: {key: "rich"}}})} == {KEY}
    )
    # (The policy phalanx-quota-labels.)
    assert by_quota == ({QUOTA} if place == "labels" else set())


@pytest.mark.parametrize(("pods", "queue"), [({}, DEFAULT_QUEUE), ({KEY: "poor"}, "poor")])
async def test_the_list_of_gangs_says_the_queue_that_is_charged(
    site: Site, pods: dict[str, str], queue: str
) -> None:
    """A PodGroup's metadata does not count, as every tenant may write it."""
    name = "podgroups.scheduling.x-k8s.io"
    (definition,) = (each for each in known_definitions() if each["metadata"]["name"] == name)
    await site.admin.create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition)
    path = f"/apis/scheduling.x-k8s.io/v1alpha1/namespaces/{TEAM}/podgroups"
    notes = {"labels": {KEY: "rich"}, "annotations": {KEY: "rich"}}
    shown = {"apiVersion": "scheduling.x-k8s.io/v1alpha1", "kind": "PodGroup"}
    await site.admin.create(path, {**shown, "metadata": {"name": "g", **notes}, "spec": {"minMember": 1}})
    body = of_kind("pods", spec={"schedulerName": "phalanx", "containers": CONTAINERS})
    body["metadata"].update(labels={"scheduling.x-k8s.io/pod-group": "g"}, annotations=pods)
    await site.admin.create(PATHS["pods"], body)
    found = await JobReader(site.admin).jobs(TEAM, 0.0)
    (entry,) = gang_entries(found, DialectOptions(), Promises())
    assert (entry.name, entry.queue) == ("g", queue)


@pytest_asyncio.fixture(params=["webhook", "policies"])
async def guarded(site: Site, request: pytest.FixtureRequest) -> AsyncIterator[Site]:
    """Return a server whose tenant may also write the status of pods."""
    everything = {"apiGroups": [""], "resources": ["pods/status"], "verbs": ["*"]}
    rbac = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{TEAM}"
    await site.admin.create(f"{rbac}/roles", {"metadata": {"name": "more"}, "rules": [everything]})
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "more"}
    subject = {"kind": "User", "name": "jane", "apiGroup": "rbac.authorization.k8s.io"}
    await site.admin.create(
        f"{rbac}/rolebindings", {"metadata": {"name": "more"}, "roleRef": reference, "subjects": [subject]}
    )
    await open_queue(site)
    if request.param == "policies":
        await install_policies(site.admin, ["phalanx"])
        yield site
        return
    async with site.webhook(queue_rights=True):
        yield site


async def test_writer_of_a_pod_status_cannot_name_a_queue(guarded: Site) -> None:
    for place in ("labels", "annotations"):
        await guarded.tenant.create(
            PATHS["pods"], of_kind("pods", place, spec={"schedulerName": "phalanx", "containers": CONTAINERS})
        )
        path = f"{PATHS['pods']}/{place}/status"
        moved = {"metadata": {place: {KEY: "rich"}}}
        said = await refusal(guarded.tenant.patch(path, moved, PatchType.MERGE))
        assert "queue rich is not allowed in this namespace" in said
        await guarded.tenant.patch(path, {"metadata": {place: {"note": "mine"}}}, PatchType.MERGE)
        # Existing values are not checked again.
        await guarded.admin.patch(path, moved, PatchType.MERGE)
        await guarded.tenant.patch(path, {"status": {"phase": "Pending", "message": "waits"}}, PatchType.MERGE)


async def test_kubelets_write_statuses_while_no_webhook_runs(site: Site) -> None:
    await open_queue(site)
    async with site.webhook(queue_rights=True):
        body = of_kind("pods", spec={"schedulerName": "phalanx", "containers": CONTAINERS})
        body["metadata"]["annotations"] = {KEY: "rich"}
        await site.admin.create(PATHS["pods"], body)
    path = f"{PATHS['pods']}/x/status"
    await site.admin.patch(path, {"status": {"phase": "Pending", "message": "waits"}}, PatchType.MERGE)
    said = await refusal(site.admin.patch(path, {"metadata": {"annotations": {KEY: "other"}}}, PatchType.MERGE))
    assert "failed calling webhook" in said
