"""Answer of `phalanx why` about the object that a user names: a gang, pod, composite, or job with its pods."""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

from phalanx.kube.client import KubeClient
from phalanx.model.gang import GangKey
from phalanx.model.text.decoding import quoted
from phalanx.reports.missing_pods import WhyAnswers, add_missing_pods, why_owner
from phalanx.reports.owners import OwnerLookup, add_suspended_job, below, without_pods
from phalanx.reports.past_evictions import add_past_eviction, add_past_gang_eviction
from phalanx.reports.why import WhyReport
from phalanx.reports.why_answer import WhyAnswer
from phalanx.views.gang_names import AmbiguousGangError

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


class TargetError(ValueError):
    """Error for a name that no object has, or several have."""


class WhySource(WhyAnswers, Protocol):
    """Answers of one dry run, and the gangs that it knows by the names that users type."""

    async def composite(self, key: GangKey) -> WhyAnswer | None:
        """Return the answer about a composite; None if there is no such CompositePodGroup."""
        ...

    async def pods_below(self, owner: str, namespace: str, name: str, uids: Collection[str]) -> WhyAnswer | None:
        """Return the answer about the first waiting pod of an owner's pods without a gang; None without such
        pods."""
        ...

    def gangs_called(self, namespace: str, name: str, kind: str = "") -> list[GangKey]:
        """Return the gangs with a typed name, waiting gangs first. Raises AmbiguousGangError."""
        ...

    def gangs_below(self, uids: Collection[str]) -> list[GangKey]:
        """Return the gangs of these pods and declaring objects (by uid), in the same order."""
        ...

    def object_path(self, key: GangKey) -> str:
        """Return the URL path of the object that declares a gang, "" for none."""
        ...

    def member_uids(self, key: GangKey) -> list[str]: ...

    def name_of(self, key: GangKey) -> str:
        """Return the shown name of a gang within its namespace."""
        ...


class DryRunAnswers:
    """Answers of the dry run of this process."""

    def __init__(self, report: WhyReport) -> None:
        self._report = report
        self.gangs_called, self.gangs_below = report.gangs_called, report.gangs_below
        self.object_path, self.member_uids = report.object_path, report.member_uids
        self.name_of = report.name_of

    async def pod(self, namespace: str, name: str) -> WhyAnswer | None:
        return self._report.pod(namespace, name)

    async def gang(self, key: GangKey) -> WhyAnswer | None:
        return self._report.gang(key)

    async def composite(self, key: GangKey) -> WhyAnswer | None:
        return self._report.composite(key)

    async def pods_below(self, owner: str, namespace: str, name: str, uids: Collection[str]) -> WhyAnswer | None:
        return self._report.pods_below(owner, namespace, name, uids)


class WhyTarget:
    """Object that a user names, with the objects of its namespace that complete the answer.

    `kind` is "", pod, gang, composite, or the kind of an owner in lower case.
    """

    def __init__(self, client: KubeClient, source: WhySource, namespace: str, kind: str, name: str) -> None:
        self._client = client
        self._source = source
        self._namespace = namespace
        self._kind = kind
        self._name = name
        self._owners = OwnerLookup(client, namespace)

    async def answer(self) -> WhyAnswer:
        """Return the answer. Raises TargetError, ApiError, ConnectionLost."""
        source, kind, namespace, name = self._source, self._kind, self._namespace, self._name
        gangs, owned = await self._gangs()
        answer = None
        if kind == "pod":
            answer = await add_past_eviction(self._client, namespace, name, await source.pod(namespace, name))
        elif kind == "composite":
            answer = await source.composite(GangKey(namespace, name))
        elif kind in _OWNERS:
            answer = await why_owner(self._client, source, kind, namespace, name)
        elif gangs or kind == "gang":
            answer = await self._gang(gangs)
        elif owned:
            answer = await source.pods_below(kind, namespace, name, owned)
        if answer is None and kind in ("gang", ""):
            # The object is a job without a gang, or a job with pods of another scheduler.
            answer = await why_owner(self._client, source, "job", namespace, name)
        if answer is None and not kind:
            answer = await source.pod(namespace, name)
        if answer is None:
            message = await without_pods(self._owners, name, kind) if kind not in _NO_OWNERS else ""
            raise TargetError(
                message or f"no {_NOUNS.get(kind, kind)} {quoted(name)} in namespace {quoted(namespace)}"
            )
        return answer

    async def _gangs(self) -> tuple[list[GangKey], set[str]]:
        """Return the gangs with the typed name or below the owner with this name, and the uids of objects below the
        owner."""
        kind = self._kind
        try:
            gangs = self._source.gangs_called(self._namespace, self._name, kind)
            owned = await below(self._owners, self._name, kind) if not gangs and kind not in _NO_OWNERS else set()
            return gangs or self._source.gangs_below(owned), owned
        except AmbiguousGangError as error:
            raise TargetError(str(error)) from error

    async def _gang(self, gangs: list[GangKey]) -> WhyAnswer | None:
        source, client = self._source, self._client
        key = gangs[0] if gangs else GangKey(self._namespace, self._name)
        answer = await add_past_gang_eviction(client, self._namespace, key.name, await source.gang(key))
        answer = await add_missing_pods(client, answer, source.object_path(key), source.member_uids(key))
        answer = await add_suspended_job(self._owners, answer)
        if answer is not None and len(gangs) > 1:
            others = ", ".join(source.name_of(other) for other in gangs[1:_MAX_GANG_NAMES])
            answer.warnings.append(f"{self._name} has {len(gangs)} gangs; other gangs: {others}")
        return answer
