"""Why a pod left, from the events that its eviction left behind: they outlast it by an hour."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from phalanx.daemon.inquiry import Answer
from phalanx.kube.client import KubeClient
from phalanx.kube.errors import ApiError
from phalanx.kube.paths import Resource
from phalanx.model.decisions import EvictionReason

EVENTS = Resource("", "v1", "events", "Event")
_REASONS = frozenset(EvictionReason)
# What the API server writes into the condition when it evicts by itself: it does not know for whom.
_SILENT = "EvictionByEvictionAPI"


async def bid_farewell(client: KubeClient, namespace: str, name: str, answer: Answer | None) -> Answer | None:
    """Completes the answer about a pod that was evicted: one that is gone, or whose own condition does not say for
    whom. Others are returned as they are. Events that may not be read are passed over."""
    if answer is not None and (answer.state, answer.reason) != ("Terminating", _SILENT):
        return answer
    event = await _last(client, namespace, name, answer.uid if answer is not None else "")
    if event is None:
        return answer
    note = str(event.get("message") or "")
    if answer is None:
        when = _when(event)
        at = f" at {when}" if when else ""
        text = f"a pod of this name was evicted{at}, and there is none now: {note}"
        return Answer("Pod", f"{namespace}/{name}", "Evicted", text, str(event.get("reason")))
    answer.reason = str(event.get("reason"))
    answer.message += f"; {note}"
    return answer


async def _last(client: KubeClient, namespace: str, name: str, uid: str) -> Mapping[str, Any] | None:
    params = {"fieldSelector": f"involvedObject.kind=Pod,involvedObject.name={name}"}
    try:
        listed = await client.list_all(EVENTS.path(namespace), params)
    except ApiError as error:
        if error.status in (403, 404):
            return None
        raise
    ours = [
        event
        for event in listed.get("items") or ()
        if event.get("reason") in _REASONS and uid in ("", (event.get("involvedObject") or {}).get("uid"))
    ]
    return max(ours, key=_when, default=None)


def _when(event: Mapping[str, Any]) -> str:
    """To the second, so that both ways to write a time compare."""
    metadata = event.get("metadata") or {}
    text = event.get("eventTime") or event.get("lastTimestamp") or metadata.get("creationTimestamp") or ""
    moment, _, _ = str(text).rstrip("Z").partition(".")
    return f"{moment}Z" if moment else ""
