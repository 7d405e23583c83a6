"""Causes of past evictions of pods and gangs, from their Events, which the API server keeps for an hour."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from phalanx.kube.client import KubeClient
from phalanx.kube.errors import ApiError
from phalanx.kube.paths import Resource
from phalanx.model.decisions import EvictionReason
from phalanx.reports.evicted_members import EvictedMembers, advice_after_eviction
from phalanx.reports.why_answer import WhyAnswer
from phalanx.views.gang_state import GangState

EVENTS = Resource("", "v1", "events", "Event")
_REASONS = frozenset(EvictionReason)
# Reason in the condition after an eviction by the API server, which does not know the preemptor.
_SILENT = "EvictionByEvictionAPI"


async def add_past_eviction(
    client: KubeClient, namespace: str, name: str, answer: WhyAnswer | None
) -> WhyAnswer | None:
    """Add a past eviction to the answer about a deleted pod, or about a pod without a named preemptor in its
    condition.

    Other answers are returned unchanged. Forbidden events are skipped.
    """
    if answer is not None and (answer.state, answer.reason) != (GangState.EVICTING, _SILENT):
        return answer
    event = await _last(client, namespace, name, answer.uid if answer is not None else "")
    if event is None:
        return answer
    if answer is None:
        text = f"a pod of this name was evicted{_at(event)} and no longer exists: {_note(event)}"
        return WhyAnswer("Pod", f"{namespace}/{name}", GangState.DELETED, text, str(event.get("reason")))
    answer.reason = str(event.get("reason"))
    answer.message += f"; {_note(event)}"
    return answer


async def add_past_gang_eviction(
    client: KubeClient, namespace: str, name: str, answer: WhyAnswer | None
) -> WhyAnswer | None:
    """Add a past eviction to the answer about a gang that waits since then, that has no pods left, or that has pods
    without a named preemptor in their conditions.

    Only objects have such events: a gang declared by labels has none.
    """
    if answer is None:
        event = await _last(client, namespace, name, "", of_pod=False)
        if event is None:
            return None
        text = f"a group of this name was evicted{_at(event)} and no longer exists: {_note(event)}"
        return WhyAnswer("Gang", f"{namespace}/{name}", GangState.DELETED, text, str(event.get("reason")))
    is_known = answer.loss is not None and answer.loss.reason != _SILENT
    complete = answer.state in (GangState.STARTING, GangState.RUNNING) and not answer.reason
    if is_known or complete or answer.state.over or answer.members is None:
        return answer
    event = await _last(client, namespace, name, answer.uid, of_pod=False) if answer.uid else None
    if event is None:
        return answer
    if answer.loss is not None:
        answer.loss.message += f"; {_note(event)}"
        answer.message += f"; {_note(event)}" if answer.state is GangState.EVICTING else ""
        return answer
    answer.loss = EvictedMembers(str(event.get("reason")), _note(event), _when(event))
    counts = answer.members
    if not (counts.pending or counts.gated or counts.active):
        answer.reason = answer.loss.reason
        answer.message = f"its pods were evicted{_at(event)} and no longer exist: {answer.loss.message}"
        answer.change = advice_after_eviction(placed=True)
    return answer


async def _last(
    client: KubeClient, namespace: str, name: str, uid: str, *, of_pod: bool = True
) -> Mapping[str, Any] | None:
    """Return the last eviction Event of a pod, or of an object that declares a gang, with this name."""
    kind = "involvedObject.kind=Pod," if of_pod else ""
    params = {"fieldSelector": f"{kind}involvedObject.name={name}"}
    try:
        listed = await client.list_all(EVENTS.path(namespace), params)
    except ApiError as error:
        if error.status in (403, 404):
            return None
        raise
    ours = []
    for event in listed.get("items") or ():
        about = event.get("involvedObject") or {}
        matches = uid in ("", about.get("uid")) and (of_pod or about.get("kind") != "Pod")
        if matches and event.get("reason") in _REASONS:
            ours.append(event)
    return max(ours, key=_when, default=None)


def _note(event: Mapping[str, Any]) -> str:
    return str(event.get("message") or "")


def _at(event: Mapping[str, Any]) -> str:
    when = _when(event)
    return f" at {when}" if when else ""


def _when(event: Mapping[str, Any]) -> str:
    """Return the time of an Event to the second, so that both time formats compare."""
    metadata = event.get("metadata") or {}
    text = event.get("eventTime") or event.get("lastTimestamp") or metadata.get("creationTimestamp") or ""
    moment, _, _ = str(text).rstrip("Z").partition(".")
    return f"{moment}Z" if moment else ""
