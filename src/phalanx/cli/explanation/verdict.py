"""The answer to `phalanx why`, from a dry run over the live cluster."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import click

from phalanx.cli.connection import time_limit
from phalanx.daemon.policy_file import dialect_options
from phalanx.model.gang import GangKey
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
# Of these the name is that of the object itself; the others have ways of their own to what they own.
_NO_OWNERS = frozenset({"pod", "gang", "composite"}) | _OWNERS
_OTHERS_NAMED = 5
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
    """Return the verdict of `target`: (namespace, kind as `parse_target` returns it, name).

    Raises click.ClickException where there is no such object.
    """
    snapshot = await read_cluster(client, names, dialect_options(policy), lease_namespace)
    await read_usage(client, snapshot, policy, lease_namespace, names)
    for text in snapshot.missing:
        click.echo(f"warning: not read: {text}", err=True)
    promises, now = await read_promises(client, lease_namespace, names), time.time()
    report = WhyReport(snapshot, policy, now, promises)
    answer = await _TargetVerdict(client, report, *target).read()
    if answer.waits:
        namespace_of, _, gang = answer.gang.partition("/")
        who = GangKey(namespace_of, gang) if gang else answer.uid
        for text in promises.warnings(now):
            click.echo(f"warning: {text}", err=True)
        answer.start = report.start(who, time_limit())
    return answer


class _TargetVerdict:
    """Verdict of one object, found by the kind and name that the user typed."""

    def __init__(self, client: KubeClient, report: WhyReport, namespace: str, kind: str, name: str) -> None:
        self._client = client
        self._report = report
        self._namespace = namespace
        self._kind = kind
        self._name = name
        self._owners = OwnerLookup(client, namespace)

    async def read(self) -> WhyAnswer:
        report, kind, where, name = self._report, self._kind, self._namespace, self._name
        gangs, owned = await self._gangs()
        answer = None
        if kind == "pod":
            answer = await add_past_eviction(self._client, where, name, report.pod(where, name))
        elif kind == "composite":
            answer = report.composite(GangKey(where, name))
        elif kind in _OWNERS:
            answer = await why_owner(self._client, report, kind, where, name)
        elif gangs or kind == "gang":
            answer = await self._gang(gangs)
        elif owned:
            answer = report.pods_below(kind, where, name, owned)
        if answer is None and kind in ("gang", ""):
            # It is a job without a gang, or one whose pods are another scheduler's.
            answer = await why_owner(self._client, report, "job", where, name)
        if answer is None and not kind:
            answer = report.pod(where, name)
        if answer is None:
            told = await without_pods(self._owners, name, kind) if kind not in _NO_OWNERS else ""
            raise click.ClickException(told or f"no {_NOUNS.get(kind, kind)} {name!r} in namespace {where!r}")
        return answer

    async def _gangs(self) -> tuple[list[GangKey], set[str]]:
        """Return the gangs of that name or below the owner of that name, and the uids below that owner."""
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
            others = ", ".join(report.name_of(each) for each in gangs[1:_OTHERS_NAMED])
            answer.warnings.append(f"it is one of {len(gangs)} gangs of {self._name}: {others}")
        return answer
