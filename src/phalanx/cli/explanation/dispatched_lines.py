"""`phalanx why` at a hub: which clusters were asked about a gang, what each answered, and what would help."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from phalanx.kube.client import KubeClient

Json = dict[str, Any]
_HELP = {
    "QuotaExceeded": "raise the queue's capability at the hub, or wait until some of its gangs have ended",
    "NoCluster": "let it go to more clusters (phalanx.dev/clusters), or make room: `phalanx why` in one",
}


async def dispatch_of(client: KubeClient, namespace: str, gang: str) -> Json | None:
    """The newest Dispatch of a PodGroup; None where there is none, or this cluster is no hub."""
    from phalanx.hub.names import DISPATCHES
    from phalanx.kube.errors import ApiError

    try:
        found = (await client.list_all(DISPATCHES.path(namespace)))["items"]
    except ApiError as error:
        if error.status in (403, 404):
            return None
        raise
    of_gang = [each for each in found if ((each.get("spec") or {}).get("gang") or {}).get("name") == gang]
    return max(of_gang, key=lambda each: str(each["metadata"].get("creationTimestamp")), default=None)


def dispatch_answer(record: Json) -> Json:
    """As data, with the texts of other clusters made harmless."""
    from phalanx.hub.objects import printable

    status = record.get("status") or {}
    texts = {
        key: printable(status.get(key, ""))
        for key in ("cluster", "since", "promised", "unknownSince", "reason", "message")
    }
    phase = printable(status.get("phase", "Pending"))
    return {
        "gang": f"{record['metadata']['namespace']}/{printable(record['spec']['gang']['name'])}",
        "phase": phase,
        "epoch": status.get("epoch", 0),
        **texts,
        "answers": [
            {key: printable(each.get(key, "")) for key in ("cluster", "start", "message")}
            for each in status.get("answers") or ()
        ],
        "attempts": [
            {key: printable(each.get(key, "")) for key in ("epoch", "cluster", "outcome", "message", "time")}
            for each in status.get("attempts") or ()
        ],
        "change": _HELP.get(texts["reason"], "") if phase == "Pending" else "",
    }


def dispatch_lines(answer: Json) -> list[str]:
    where = f" in cluster {answer['cluster']}, epoch {answer['epoch']}" if answer["cluster"] else " at the hub"
    lines = [
        f"gang {answer['gang']}: {answer['phase']}{where}" + (f" ({answer['reason']})" * bool(answer["reason"]))
    ]
    if answer["message"]:
        lines.append(f"  {answer['message']}")
    if answer["promised"]:
        lines.append(f"  Promised: {answer['promised']}")
    if answer["unknownSince"]:
        lines.append(f"  Its cluster has not answered since {answer['unknownSince']}")
    if answer["answers"]:
        lines.append("  What the clusters said when it was chosen:")
        for each in answer["answers"]:
            mark = "*" if each["cluster"] == answer["cluster"] else " "
            start = f"starts {each['start']}" if each["start"] else "no start"
            said = f" ({each['message']})" if each["message"] else ""
            lines.append(f"   {mark} {each['cluster']}: {start}{said}")
        if answer["cluster"]:
            lines.append(
                "    (* chosen: the earliest start; within a minute the lowest cost, then the fewest gangs)"
            )
    lines += [
        f"  Before: epoch {each['epoch']} in {each['cluster']}: {each['outcome']}, {each['message']}"
        for each in answer["attempts"]
    ]
    if answer["change"]:
        lines.append(f"  What would help: {answer['change']}")
    return lines
