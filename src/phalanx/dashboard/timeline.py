"""Details of one gang or single pod: why it waits, and the history of its members."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import OrderedDict
from typing import Any

import msgspec

from phalanx.dashboard.lifelines import member_line
from phalanx.dashboard.rehearsal.messages import AskWhy, Failed
from phalanx.dashboard.rows.entries import GangAnswer, Mark
from phalanx.dashboard.watch import ClusterWatch
from phalanx.kube.client import KubeClient
from phalanx.kube.errors import ApiError, ConnectionLost
from phalanx.kube.paths import Resource
from phalanx.model.gang import GangKey
from phalanx.reports.missing_pods import add_missing_pods
from phalanx.reports.past_evictions import add_past_eviction, add_past_gang_eviction
from phalanx.reports.why import object_path
from phalanx.reports.why_answer import WhyAnswer
from phalanx.views.gang_names import gangs_named

log = logging.getLogger(__name__)

EVENTS = Resource("", "v1", "events", "Event")
_MOST_KEPT = 256
_MOST_MARKS = 200
_MOST_MEMBERS = 500
_WHY_SECONDS = 20.0
_EVENTS_FOR = 5.0


class GangHistory:
    """Details of gangs, cached until the next dry run or change, so that many viewers of a gang cause one
    question."""

    def __init__(self, client: KubeClient, watch: ClusterWatch) -> None:
        self._client = client
        self._watch = watch
        # Keyed by the question and by whether the answer includes events.
        self._why: OrderedDict[tuple[AskWhy, bool], tuple[int, WhyAnswer | None]] = OrderedDict()
        self._events: OrderedDict[tuple[str, str], tuple[float, list[Mark]]] = OrderedDict()

    async def answer(self, namespace: str, name: str, *, pod: bool, with_events: bool) -> GangAnswer | None:
        """Return the details of a gang; None if no such gang is or was known.

        `name` is the gang's own, or one as of `gangs_named`. Raises AmbiguousGangError.
        """
        watch = self._watch
        if not pod and GangKey(namespace, name) not in watch.state.gangs:
            named = gangs_named(watch.state.gangs, namespace, name)
            name = named[0].name if named else name
        key = GangKey(namespace, f"pod/{name}" if pod else name)
        row = watch.row(key.path)
        lines = watch.lifelines.of(key)
        if row is None and not lines:
            return None
        why, problem = await self._ask(AskWhy(namespace, name, pod), with_events)
        about = row.title if row is not None and row.job == row.name else name
        created = [Mark(when=row.created, what="created")] if row is not None and row.created else []
        events = await self._events_of(namespace, about) if with_events else []
        # In the same second: the creation, then events (of a whole second), then states that were seen later.
        marks = sorted([*created, *events, *watch.marks(key)], key=_moment)
        plans = {
            uid: member.pod.mark.time
            for uid in (line.uid for line in lines)
            if (member := watch.state.pods.get(uid)) is not None and member.pod.mark is not None
        }
        return GangAnswer(
            row=row,
            why=why,
            members=[member_line(line, plans.get(line.uid, 0)) for line in lines[-_MOST_MEMBERS:]],
            marks=marks[-_MOST_MARKS:],
            problem=problem,
            omitted=[] if with_events else ["events: you lack the right to list events here"],
        )

    async def _ask(self, question: AskWhy, with_events: bool) -> tuple[WhyAnswer | None, str]:
        """Return (answer why the gang waits, reason for a missing answer)."""
        key = (question, with_events)
        watch, known = self._watch, self._why.get(key)
        if known is not None and known[0] == watch.generation:
            return known[1], ""
        if watch.last is None:
            return None, watch.problem or "the first rehearsal is not complete"
        generation = watch.generation
        try:
            async with asyncio.timeout(_WHY_SECONDS):
                answer = await watch.rehearsal.why(question)
        except TimeoutError:
            return None, f"the rehearsal did not answer within {_WHY_SECONDS:.0f} s"
        if isinstance(answer, Failed):
            return None, answer.why
        if with_events and answer is not None:
            completed = add_past_eviction if question.pod else add_past_gang_eviction
            try:
                answer = await completed(self._client, question.namespace, question.name, answer)
                if not question.pod:
                    record = watch.state.gangs.get(GangKey(question.namespace, question.name))
                    members = list(record.members) if record is not None else []
                    answer = await add_missing_pods(self._client, answer, object_path(record), members)
            except (ApiError, ConnectionLost) as error:
                log.warning("past of %s/%s: %s", question.namespace, question.name, error)
        self._why[key] = (generation, answer)
        self._why.move_to_end(key)
        while len(self._why) > _MOST_KEPT:
            self._why.popitem(last=False)
        return answer, ""

    async def _events_of(self, namespace: str, name: str) -> list[Mark]:
        """Return the timeline entries for the Events about a gang or pod, newest last."""
        now = time.monotonic()
        when, marks = self._events.get((namespace, name), (0.0, []))
        if when and now - when < _EVENTS_FOR:
            return marks
        try:
            events = await self._client.list_all(
                EVENTS.path(namespace), {"fieldSelector": f"involvedObject.name={name}"}
            )
        except (ApiError, ConnectionLost):
            return marks
        items = sorted(events.get("items") or (), key=_resource_version)
        marks = [mark for event in items if (mark := _mark(event)).when]
        self._events[namespace, name] = (now, marks)
        while len(self._events) > _MOST_KEPT:
            self._events.popitem(last=False)
        return marks


class _Event(msgspec.Struct, rename="camel"):
    reason: str | None = ""
    message: str | None = ""
    event_time: str | None = ""
    last_timestamp: str | None = ""


def _mark(event: Any) -> Mark:
    try:
        read = msgspec.convert(event, _Event, strict=False)
    except msgspec.ValidationError:
        return Mark(when="", what="")
    moment = str(read.event_time or read.last_timestamp or "")
    return Mark(when=moment, what=read.reason or "Event", message=(read.message or "")[:2000])


def _moment(mark: Mark) -> str:
    """Return a sort key of the mark's time: a whole second comes before its fractions."""
    return mark.when.rstrip("Z")


def _resource_version(event: Any) -> int:
    """Return the order in which the API server wrote an Event; 0 if it is unknown."""
    metadata = event.get("metadata") if isinstance(event, dict) else None
    version = metadata.get("resourceVersion") if isinstance(metadata, dict) else None
    return int(version) if isinstance(version, str) and version.isascii() and version.isdecimal() else 0
