"""Explanation by `phalanx why` at a hub: dispatch of a gang, with the answers of the member clusters and the
fix."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from phalanx.kube.client import KubeClient

Json = dict[str, Any]


async def dispatch_of(client: KubeClient, namespace: str, gang: str) -> Json | None:
    """Return the newest Dispatch of a gang; None if there is none or the cluster is not a hub."""
    from phalanx.hub.names import DISPATCHES
    from phalanx.kube.errors import ApiError

    try:
        records = (await client.list_all(DISPATCHES.path(namespace)))["items"]
    except ApiError as error:
        if error.status in (403, 404):
            return None
        raise
    of_gang = [record for record in records if ((record.get("spec") or {}).get("gang") or {}).get("name") == gang]
    return max(of_gang, key=lambda record: str(record["metadata"].get("creationTimestamp")), default=None)


def dispatch_answer(record: Json) -> Json:
    """Return a Dispatch record as a document for `phalanx why`."""
    import msgspec

    from phalanx.hub import dispatch_answer as answers

    answer: Json = msgspec.to_builtins(answers.dispatch_answer(record))
    return answer


def dispatch_lines(answer: Json) -> list[str]:
    location = f" in cluster {answer['cluster']}, epoch {answer['epoch']}" if answer["cluster"] else " at the hub"
    lines = [
        f"gang {answer['gang']}: {answer['phase']}{location}" + (f" ({answer['reason']})" * bool(answer["reason"]))
    ]
    if answer["message"]:
        lines.append(f"  {answer['message']}")
    if answer["promised"]:
        lines.append(f"  Promised: {answer['promised']}")
    if answer["unknownSince"]:
        lines.append(f"  No contact with its cluster since {answer['unknownSince']}")
    if answer["answers"]:
        lines.append("  Answers of the clusters at dispatch:")
        for reply in answer["answers"]:
            mark = "*" if reply["cluster"] == answer["cluster"] else " "
            start = f"starts {reply['start']}" if reply["start"] else "no start"
            message = f" ({reply['message']})" if reply["message"] else ""
            lines.append(f"   {mark} {reply['cluster']}: {start}{message}")
        if answer["cluster"]:
            lines.append("    (* selected: earliest start; within one minute lowest cost, then fewest gangs)")
    lines += [
        f"  Before: epoch {attempt['epoch']} in {attempt['cluster']}: {attempt['outcome']}, {attempt['message']}"
        for attempt in answer["attempts"]
    ]
    if answer["change"]:
        lines.append(f"  Fix: {answer['change']}")
    return lines
