"""What may be said when nobody binds a pod: whether a scheduler has looked at them, or holds its lease."""

from __future__ import annotations

import asyncio
import sys

import click

from phalanx.cli.bench.objects import BenchWorkload
from phalanx.cli.bench.stopwatch import Stopwatch
from phalanx.kube.client import KubeClient
from phalanx.kube.core_resources import PODS
from phalanx.kube.errors import ApiError, ConnectionLost
from phalanx.kube.lease import LEASES
from phalanx.kube.own_objects import default_lease

#: After so many seconds without any binding.
SILENCE = 10.0
#: So many pods are looked at.
_LOOKED_AT = 50


async def tell_of_silence(client: KubeClient, workload: BenchWorkload, watch: Stopwatch) -> None:
    """Says once on stderr that no pod is bound, and what is known of the scheduler."""
    await asyncio.sleep(SILENCE)
    if watch.bound_at:
        return
    try:
        known = await _judged(client, workload) or await _leads(client, workload.scheduler)
    except (ApiError, ConnectionLost) as error:
        known = f"whether a scheduler named {workload.scheduler!r} runs cannot be seen: {error}"
    clear = "\r\x1b[K" if sys.stderr.isatty() else ""
    click.echo(f"{clear}after {SILENCE:g} s no pod is bound yet: {known}", err=True)


async def _judged(client: KubeClient, workload: BenchWorkload) -> str:
    """What somebody has said about one of the pods; "" for nobody."""
    listed = await client.get(PODS.path(workload.namespace), {"limit": _LOOKED_AT})
    for item in listed["items"]:
        for condition in item.get("status", {}).get("conditions") or ():
            if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
                return (
                    f"scheduler {workload.scheduler!r} says: {condition.get('message') or condition.get('reason')}"
                )
    return ""


async def _leads(client: KubeClient, scheduler: str) -> str:
    """Schedulers by themselves need no lease, so none is no proof."""
    names = {default_lease([scheduler]), scheduler}
    for item in (await client.list_all(LEASES.path()))["items"]:
        metadata, spec = item["metadata"], item.get("spec") or {}
        if metadata["name"] in names and spec.get("holderIdentity"):
            lease = f"lease {metadata['namespace']}/{metadata['name']} is held by {spec['holderIdentity']}"
            return f"{lease} (renewed {spec.get('renewTime') or 'never'}), who has said nothing about the pods"
    return (
        f"nothing shows that a scheduler named {scheduler!r} runs: "
        f"nobody has said a word about the pods, or holds a lease {default_lease([scheduler])}"
    )
