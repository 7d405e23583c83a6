"""`phalanx why` at a hub: which clusters were asked about a gang, what each answered, and what would help."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from phalanx.kube.client import KubeClient

Json = dict[str, Any]


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
    """As data."""
    import msgspec

    from phalanx.hub import dispatch_answer as answers

    found: Json = msgspec.to_builtins(answers.dispatch_answer(record))
    return found


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
