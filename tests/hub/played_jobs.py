"""Jobs managed by a hub, and the work of members' controllers and kubelets on their copies."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

from phalanx.hub.jobs.kinds import JOB, JOB_SET, MANAGED_BY, JobKind
from phalanx.kube.client import PatchType
from phalanx.kube.errors import ApiError
from tests.hub.federation import NAMESPACE, Federation, Json, Site, until

CONTROLLERS = frozenset({"jobs", "garbage"})
JOB_SETS = JOB_SET.resource
#: As much of a JobSet's definition as is read here.
JOB_SET_DEFINITION: Json = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "jobsets.jobset.x-k8s.io"},
    "spec": {
        "group": "jobset.x-k8s.io",
        "scope": "Namespaced",
        "names": {"kind": "JobSet", "listKind": "JobSetList", "plural": "jobsets", "singular": "jobset"},
        "versions": [
            {
                "name": "v1alpha2",
                "served": True,
                "storage": True,
                "subresources": {"status": {}},
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "properties": {
                            key: {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
                            for key in ("spec", "status")
                        },
                    }
                },
            }
        ],
    },
}


def job_spec(pods: int = 2, cpu: str = "1") -> Json:
    container = {"name": "main", "image": "train", "resources": {"requests": {"cpu": cpu}}}
    pod = {
        "schedulerName": "phalanx",
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 0,
        "containers": [container],
    }
    counts = {"parallelism": pods, "completions": pods, "completionMode": "Indexed"}
    return {**counts, "backoffLimit": 6, "template": {"spec": pod}}


def a_job(name: str, managed_by: str | None = MANAGED_BY, **metadata: Any) -> Json:
    spec = job_spec() | ({"managedBy": managed_by} if managed_by else {})
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name, **metadata}, "spec": spec}


def a_job_set(name: str, **metadata: Any) -> Json:
    replicated = [{"name": "workers", "replicas": 1, "template": {"spec": job_spec()}}]
    return {
        "apiVersion": JOB_SETS.api_version,
        "kind": "JobSet",
        "metadata": {"name": name, **metadata},
        "spec": {"managedBy": MANAGED_BY, "replicatedJobs": replicated},
    }


async def submit(three: Federation, kind: JobKind, job: Json) -> Json:
    made: Json = await three.hub.client.create(kind.resource.path(NAMESPACE), job)
    return made


async def get(site: Site, kind: JobKind, name: str) -> Json | None:
    try:
        found: Json = await site.client.get(kind.resource.path(NAMESPACE, name))
    except ApiError as error:
        if error.status != 404:
            raise
        return None
    return found


async def patch(site: Site, kind: JobKind, name: str, change: Json) -> None:
    await site.client.patch(kind.resource.path(NAMESPACE, name), change, PatchType.MERGE)


async def condition(three: Federation, kind: JobKind, name: str, wanted: str) -> Json:
    """The job at the hub when it has this condition."""

    async def holds() -> Json:
        job = await get(three.hub, kind, name) or {}
        there = (job.get("status") or {}).get("conditions") or ()
        return job if any((each["type"], each["status"]) == (wanted, "True") for each in there) else {}

    return await until(holds, f"{kind.name} {name} is {wanted} at the hub", await three.record(name))


async def pods_of(site: Site, name: str) -> list[Json]:
    return [pod for key, pod in (await site.pods()).items() if key.startswith(f"{name}-")]


async def until_running(site: Site, name: str, count: int = 2) -> None:
    """The pods of the copy have nodes, and a kubelet starts them."""
    seen: list[Json] = []

    async def holds() -> bool:
        seen[:] = await pods_of(site, name)
        return len([pod for pod in seen if pod["spec"].get("nodeName")]) == count

    await until(holds, f"{count} pods of {name} have nodes in {site.name}", seen)
    for pod in await pods_of(site, name):
        await site.phase("Running", pod["metadata"]["name"])


async def end_pods(site: Site, name: str, phase: str = "Succeeded") -> None:
    for pod in await pods_of(site, name):
        await site.phase(phase, pod["metadata"]["name"])


async def play_job_sets(site: Site) -> None:
    """Play the JobSet controller of a site: a Job for each entry, suspended with it, and Completed when they
    are. Runs until cancelled.
    """
    jobs = JOB.resource.path(NAMESPACE)
    while True:
        await asyncio.sleep(0.05)
        for each in (await site.client.list_all(JOB_SETS.path(NAMESPACE)))["items"]:
            metadata, spec = each["metadata"], each["spec"]
            if metadata.get("deletionTimestamp") or spec.get("managedBy"):
                continue
            with contextlib.suppress(ApiError):  # a concurrent deletion is possible
                name = f"{metadata['name']}-workers-0"
                found = {job["metadata"]["name"]: job for job in (await site.client.list_all(jobs))["items"]}
                suspend = bool(spec.get("suspend"))
                if name not in found:
                    await site.client.create(jobs, _child(each, name, suspend))
                elif found[name]["spec"].get("suspend") != suspend:
                    await patch(site, JOB, name, {"spec": {"suspend": suspend}})
                else:
                    await _conclude(site, each, found[name])


def _child(job_set: Json, name: str, suspend: bool) -> Json:
    template = job_set["spec"]["replicatedJobs"][0]["template"]
    owner = {
        "apiVersion": job_set["apiVersion"],
        "kind": "JobSet",
        "name": job_set["metadata"]["name"],
        "uid": job_set["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }
    metadata = {"name": name, "ownerReferences": [owner]}
    return {"metadata": metadata, "spec": {**template["spec"], "suspend": suspend}}


async def _conclude(site: Site, job_set: Json, job: Json) -> None:
    conditions = (job.get("status") or {}).get("conditions") or ()
    ends = [each for each in conditions if each["type"] in ("Complete", "Failed") and each["status"] == "True"]
    if not ends or (job_set.get("status") or {}).get("conditions"):
        return
    kind = "Completed" if ends[0]["type"] == "Complete" else "Failed"
    told = {"type": kind, "status": "True", "reason": "AllJobsCompleted", "message": "jobset completed"}
    told["lastTransitionTime"] = ends[0]["lastTransitionTime"]
    path = JOB_SETS.path(NAMESPACE, job_set["metadata"]["name"], "status")
    status = {"status": {"conditions": [told], "terminalState": kind}}
    await site.client.patch(path, status, PatchType.MERGE)
