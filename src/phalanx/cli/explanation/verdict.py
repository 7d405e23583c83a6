"""Verdict of `phalanx why`, from a dry run over the live cluster."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import click

from phalanx.cli.connection import time_limit
from phalanx.daemon.policy_file import dialect_options
from phalanx.model.gang import GangKey
from phalanx.model.text.decoding import quoted
from phalanx.reports.missing_pods import add_missing_pods, why_owner
from phalanx.reports.owners import OwnerLookup, add_suspended_job, below, without_pods
from phalanx.reports.past_evictions import add_past_eviction, add_past_gang_eviction
from phalanx.reports.read_promises import read_promises
from phalanx.reports.snapshot import read_cluster
from phalanx.reports.stored_usage import read_usage
from phalanx.reports.why import WhyReport
from phalanx.reports.why_answer import WhyAnswer
from phalanx.views.gang_names import AmbiguousGangError

if TYPE_CHECKING:
    from phalanx.kube.client import KubeClient
    from phalanx.scheduling.framework.policy import Policy

_OWNERS = frozenset({"job", "vcjob", "replicaset", "statefulset"})
# For these kinds the name is the object's own name; other kinds are resolved through their owner references.
_NO_OWNERS = frozenset({"pod", "gang", "composite"}) | _OWNERS
_MAX_GANG_NAMES = 5
_NOUNS = {
    "": "gang, job or pod",
    "pod": "pod",
    "gang": "group object or pod that declares a gang",
    "composite": "CompositePodGroup",
}


async def read_verdict(
    client: KubeClient,
    policy: Policy,
    names: tuple[str, ...],
    lease_namespace: str,
    target: tuple[str, str, str],
) -> WhyAnswer:
    """Return the verdict of a gang, job or pod by a dry run: `target` is (namespace, kind as `parse_target` returns
    it, name).

    Raises click.ClickException if the object does not exist.
    """
    snapshot = await read_cluster(client, names, dialect_options(policy), lease_namespace)
    await read_usage(client, snapshot, policy, lease_namespace, names)
    for text in snapshot.missing:
        click.echo(f"warning: cannot read {text}", err=True)
    promises, now = await read_promises(client, lease_namespace, names), time.time()
    report = WhyReport(snapshot, policy, now, promises)
    answer = await _TargetVerdict(client, report, *target).read()
    if answer.waits:
        namespace_of, _, gang = answer.gang.partition("/")
        unit = GangKey(namespace_of, gang) if gang else answer.uid
        for text in promises.warnings(now):
            click.echo(f"warning: {text}", err=True)
        answer.start = report.start(unit, time_limit())
    return answer


class _TargetVerdict:
    """Verdict of one gang, job or pod, found by the kind and name that the user typed."""

    def __init__(self, client: KubeClient, report: WhyReport, namespace: str, kind: str, name: str) -> None:
        self._client = client
        self._report = report
        self._namespace = namespace
        self._kind = kind
        self._name = name
        self._owners = OwnerLookup(client, namespace)

    async def read(self) -> WhyAnswer:
        report, kind, namespace, name = self._report, self._kind, self._namespace, self._name
        gangs, owned = await self._gangs()
        answer = None
        if kind == "pod":
            answer = await add_past_eviction(self._client, namespace, name, report.pod(namespace, name))
        elif kind == "composite":
            answer = report.composite(GangKey(namespace, name))
        elif kind in _OWNERS:
            answer = await why_owner(self._client, report, kind, namespace, name)
        elif gangs or kind == "gang":
            answer = await self._gang(gangs)
        elif owned:
            answer = report.pods_below(kind, namespace, name, owned)
        if answer is None and kind in ("gang", ""):
            # The object is a job without a gang, or a job with pods of another scheduler.
            answer = await why_owner(self._client, report, "job", namespace, name)
        if answer is None and not kind:
            answer = report.pod(namespace, name)
        if answer is None:
            message = await without_pods(self._owners, name, kind) if kind not in _NO_OWNERS else ""
            raise click.ClickException(
                message or f"no {_NOUNS.get(kind, kind)} {quoted(name)} in namespace {quoted(namespace)}"
            )
        return answer

    async def _gangs(self) -> tuple[list[GangKey], set[str]]:
        """Return the gangs with the typed name or below the owner with this name, and the uids of objects below the
        owner."""
        kind = self._kind
        try:
            gangs = self._report.gangs_called(self._namespace, self._name, kind)
            owned = await below(self._owners, self._name, kind) if not gangs and kind not in _NO_OWNERS else set()
            return gangs or self._report.gangs_below(owned), owned
        except AmbiguousGangError as error:
            raise click.ClickException(str(error)) from error

    async def _gang(self, gangs: list[GangKey]) -> WhyAnswer | None:
        report, client = self._report, self._client
        key = gangs[0] if gangs else GangKey(self._namespace, self._name)
        answer = await add_past_gang_eviction(client, self._namespace, key.name, report.gang(key))
        answer = await add_missing_pods(client, answer, report.object_path(key), report.member_uids(key))
        answer = await add_suspended_job(self._owners, answer)
        if answer is not None and len(gangs) > 1:
            others = ", ".join(report.name_of(other) for other in gangs[1:_MAX_GANG_NAMES])
            answer.warnings.append(f"{self._name} has {len(gangs)} gangs; other gangs: {others}")
        return answer
