"""Attacks on queues by suspended jobs, whose PodGroups are created by a controller with rights to every queue."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from phalanx.admission.queue_rights import LABELLED
from phalanx.cli.installation.admission import policies
from phalanx.cli.installation.install import install_policies
from phalanx.kube.client import PatchType
from tests.admission.conftest import TEAM, Site
from tests.admission.test_webhook_service import open_queue, refusal

Json = dict[str, Any]

LABEL = "phalanx.dev/queue"
POD = {
    "spec": {
        "schedulerName": "phalanx",
        "restartPolicy": "Never",
        "containers": [{"name": "main", "image": "busybox"}],
    }
}


KINDS = {
    "jobs": ("batch/v1", "Job"),
    "cronjobs": ("batch/v1", "CronJob"),
    "jobsets": ("jobset.x-k8s.io/v1alpha2", "JobSet"),
}


def path(kind: str, name: str = "") -> str:
    return f"/apis/{KINDS[kind][0]}/namespaces/{TEAM}/{kind}/{name}".rstrip("/")


def labelled(kind: str, queue: str, name: str = "x", *, inside: bool = False) -> Json:
    """Return a suspended job, or a kind that creates one, with the label `inside` its template or outside."""
    labels = {"labels": {LABEL: queue}}
    shown = dict(zip(("apiVersion", "kind"), KINDS[kind], strict=True))
    job: Json = {"spec": {"suspend": True, "template": POD}}
    if kind == "jobs":
        return {**shown, "metadata": {"name": name, **labels}, **job}
    if inside or kind == "cronjobs":
        job["metadata"] = labels
    spec: Json = {"suspend": True, "replicatedJobs": [{"name": "a", "template": job}]}
    if kind == "cronjobs":
        spec = {"schedule": "* * * * *", "jobTemplate": job}
    return {**shown, "metadata": {"name": name, **({} if inside else labels)}, "spec": spec}


WAYS = [("jobs", False), ("cronjobs", True), ("jobsets", False), ("jobsets", True)]


@pytest_asyncio.fixture(params=["webhook", "policies"])
async def guarded(site: Site, request: pytest.FixtureRequest) -> AsyncIterator[Site]:
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    names = {"plural": "jobsets", "singular": "jobset", "kind": "JobSet", "listKind": "JobSetList"}
    version = {"name": "v1alpha2", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    spec = {"group": "jobset.x-k8s.io", "scope": "Namespaced", "names": names, "versions": [version]}
    definition = {"metadata": {"name": "jobsets.jobset.x-k8s.io"}, "spec": spec}
    await site.admin.create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition)
    everything = {"apiGroups": ["batch", "jobset.x-k8s.io"], "resources": ["*"], "verbs": ["*"]}
    rbac = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{TEAM}"
    await site.admin.create(f"{rbac}/roles", {"metadata": {"name": "more"}, "rules": [everything]})
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "more"}
    subject = {"kind": "User", "name": "jane", "apiGroup": "rbac.authorization.k8s.io"}
    binding = {"metadata": {"name": "more"}, "roleRef": reference, "subjects": [subject]}
    await site.admin.create(f"{rbac}/rolebindings", binding)
    await open_queue(site)
    if request.param == "policies":
        await install_policies(site.admin, ["phalanx"])
        yield site
        return
    async with site.webhook(queue_rights=True):
        yield site


async def test_suspended_job_does_not_wait_in_a_foreign_queue(guarded: Site) -> None:
    for kind, inside in WAYS:
        name = f"x-{inside}".lower()
        said = await refusal(guarded.tenant.create(path(kind), labelled(kind, "rich", name, inside=inside)))
        assert "queue rich is not allowed in this namespace" in said, (kind, inside)
        # Nor by the way round: first the default queue, then this one.
        await guarded.tenant.create(path(kind), labelled(kind, "default", name, inside=inside))
        moved = labelled(kind, "rich", name, inside=inside)
        patch = (
            {"metadata": moved["metadata"], "spec": moved["spec"]}
            if kind != "jobs"
            else {"metadata": moved["metadata"]}
        )
        said = await refusal(guarded.tenant.patch(path(kind, name), patch, PatchType.MERGE))
        assert "queue rich is not allowed in this namespace" in said, (kind, inside)


async def test_job_that_an_administrator_put_into_a_queue_stays_editable(guarded: Site) -> None:
    for kind, inside in WAYS:
        await guarded.admin.create(path(kind), labelled(kind, "rich", inside=inside))
        for patch in ({"metadata": {"annotations": {"a": "b"}}}, {"spec": {"suspend": False}}):
            await guarded.tenant.patch(path(kind, "x"), patch, PatchType.MERGE)
        await guarded.tenant.delete(path(kind, "x"))
    # An object without a queue is not checked.
    plain = labelled("jobs", "rich")
    del plain["metadata"]["labels"]
    await guarded.tenant.create(path("jobs"), plain)


async def test_only_jobs_with_a_queue_are_refused_while_the_webhook_is_down(site: Site) -> None:
    await open_queue(site)
    async with site.webhook(queue_rights=True):
        await site.admin.create(path("jobs"), labelled("jobs", "rich", "old"))
    assert "failed calling webhook" in await refusal(site.admin.create(path("jobs"), labelled("jobs", "rich")))
    plain = labelled("jobs", "rich")
    del plain["metadata"]["labels"]
    await site.admin.create(path("jobs"), plain)
    # Updates without a change of label or spec are not sent to the webhook, so the remaining jobs can end.
    await site.admin.patch(path("jobs", "old"), {"metadata": {"annotations": {"a": "b"}}}, PatchType.MERGE)
    await site.admin.delete(path("jobs", "old"))


def test_policy_covers_the_kinds_of_the_webhook() -> None:
    policy = next(each for each in policies(["phalanx"], {}) if each["metadata"]["name"] == "phalanx-queue-labels")
    rules = policy["spec"]["matchConstraints"]["resourceRules"]
    told = {f"{plural}.{group}" for rule in rules for group in rule["apiGroups"] for plural in rule["resources"]}
    assert told == set(LABELLED)
