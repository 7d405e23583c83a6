"""Diagnosis of a benchmark in which no pod is bound: whether the scheduler has judged pods or holds its lease."""

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
from phalanx.model.text.decoding import quoted

#: Seconds without any binding before the diagnosis is printed.
SILENCE = 10.0
#: Number of pods that are checked for a scheduler's condition.
_CHECKED_PODS = 50


async def report_silence(client: KubeClient, workload: BenchWorkload, watch: Stopwatch) -> None:
    """Print once on stderr that no pod is bound yet, with a diagnosis of the scheduler."""
    await asyncio.sleep(SILENCE)
    if watch.bound_at:
        return
    try:
        diagnosis = await _refusal(client, workload) or await _lease_state(client, workload.scheduler)
    except (ApiError, ConnectionLost) as error:
        diagnosis = f"cannot check scheduler {quoted(workload.scheduler)}: {error}"
    clear = "\r\x1b[K" if sys.stderr.isatty() else ""
    click.echo(f"{clear}after {SILENCE:g} s 0 pods are bound: {diagnosis}", err=True)


async def _refusal(client: KubeClient, workload: BenchWorkload) -> str:
    """Return the scheduler's message about an unschedulable pod of the benchmark; "" if there is none."""
    listed = await client.get(PODS.path(workload.namespace), {"limit": _CHECKED_PODS})
    for item in listed["items"]:
        for condition in item.get("status", {}).get("conditions") or ():
            if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
                message = condition.get("message") or condition.get("reason")
                return f"scheduler {quoted(workload.scheduler)} reports: {message}"
    return ""


async def _lease_state(client: KubeClient, scheduler: str) -> str:
    """Return the state of the scheduler's lease. A missing lease proves nothing: one replica needs none."""
    names = {default_lease([scheduler]), scheduler}
    for item in (await client.list_all(LEASES.path()))["items"]:
        metadata, spec = item["metadata"], item.get("spec") or {}
        if metadata["name"] in names and spec.get("holderIdentity"):
            lease = f"lease {metadata['namespace']}/{metadata['name']} is held by {spec['holderIdentity']}"
            return f"{lease} (renewed {spec.get('renewTime') or 'never'}); no pod has a PodScheduled condition"
    return (
        f"scheduler {quoted(scheduler)} does not seem to run: "
        f"no pod has a PodScheduled condition, and lease {default_lease([scheduler])} has no holder"
    )
