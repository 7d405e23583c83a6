"""Command `phalanx clusters`: member clusters of a hub and the gangs dispatched to them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from phalanx.cli.connection import connection_options, output_option
from phalanx.cli.invocation import Invocation, pass_invocation

if TYPE_CHECKING:
    from phalanx.kube.client import KubeClient


@dataclass(frozen=True, kw_only=True)
class ClustersArguments:
    """Arguments of `phalanx clusters`."""

    gangs: bool


@click.command(short_help="List member clusters and the gangs dispatched to them.")
@click.option("--gangs", is_flag=True, help="List the gangs, with the clusters' answers and the attempts.")
@pass_invocation(ClustersArguments, connection_options, output_option)
def clusters(invocation: Invocation, arguments: ClustersArguments) -> None:
    """List the member clusters of a hub with state, capacity and number of gangs.

    NODES is ready/total. CPU and GPU are used/total; used is as of the hub's last request to that cluster.
    CREDENTIAL is the remaining validity of the hub's kubeconfig for that cluster.

    \b
    phalanx clusters
    phalanx clusters --gangs
    """
    gangs = arguments.gangs
    members, records = invocation.run(_read)
    if not invocation.prints_table:
        invocation.print_document(
            [_gang(item) for item in records] if gangs else [_cluster(item, records) for item in members]
        )
        return
    click.echo("\n".join(_gang_lines(records) if gangs else _lines(members, records)))


async def _read(client: KubeClient) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    from phalanx.hub.names import DISPATCHES, MEMBER_CLUSTERS
    from phalanx.kube.errors import ApiError

    try:
        members = (await client.list_all(MEMBER_CLUSTERS.path()))["items"]
        records = (await client.list_all(DISPATCHES.path()))["items"]
    except ApiError as error:
        if error.status == 404:
            raise click.ClickException(
                "this cluster is not a hub; set it up with: phalanx install --hub"
            ) from error
        raise
    return members, records


def _cluster(member: dict[str, Any], records: list[dict[str, Any]]) -> dict[str, Any]:
    from phalanx.hub.objects import printable

    name, spec, status = member["metadata"]["name"], member.get("spec") or {}, member.get("status") or {}
    active: dict[str, Any] = next(
        (condition for condition in status.get("conditions") or () if condition.get("type") == "Active"), {}
    )
    return {
        "name": name,
        "state": printable(spec.get("state", "Active")),
        "active": printable(active.get("status", "Unknown")),
        "reason": printable(active.get("reason", "NotSeenByHub")),
        "message": printable(active.get("message", "")),
        "lastSeen": printable(status.get("lastSeen", "")),
        "version": printable(status.get("version", "")),
        "nodes": {key: _part(status, "nodes").get(key) for key in ("total", "ready")},
        "allocatable": _texts(_part(status, "allocatable")),
        "used": _texts(_part(status, "used")),
        "credentialExpires": printable(status.get("credentialExpires", "")),
        "cost": spec.get("cost", 0),
        "gangs": sum(_is_at(record, name) for record in records),
    }


def _part(document: dict[str, Any], name: str) -> dict[str, Any]:
    part = document.get(name)
    return part if isinstance(part, dict) else {}


def _texts(amounts: dict[str, Any]) -> dict[str, str]:
    from phalanx.hub.objects import printable

    return {printable(name): printable(amount) for name, amount in amounts.items()}


def _is_at(record: dict[str, Any], cluster: str) -> bool:
    status = record.get("status") or {}
    return status.get("cluster") == cluster and status.get("phase") != "Ended"


def _gang(record: dict[str, Any]) -> dict[str, Any]:
    from phalanx.hub.objects import printable

    status = record.get("status") or {}
    return {
        "namespace": record["metadata"]["namespace"],
        "name": printable(record["spec"]["gang"]["name"]),
        "phase": printable(status.get("phase", "Pending")),
        "cluster": printable(status.get("cluster", "")),
        "epoch": status.get("epoch", 0),
        "unknownSince": printable(status.get("unknownSince", "")),
        "reason": printable(status.get("reason", "")),
        "message": printable(status.get("message", "")),
        "answers": [
            {key: printable(answer.get(key, "")) for key in ("cluster", "start", "message")}
            for answer in status.get("answers") or ()
        ],
        "attempts": [
            {key: printable(attempt.get(key, "")) for key in ("epoch", "cluster", "outcome", "message", "time")}
            for attempt in status.get("attempts") or ()
        ],
    }


def _lines(members: list[dict[str, Any]], records: list[dict[str, Any]]) -> list[str]:
    from phalanx.cli.columns import columns

    if not members:
        return ["No member clusters. To join one, see docs/many-clusters.md."]
    head = ("NAME", "STATE", "ACTIVE", "REASON", "VERSION", "NODES", "CPU", "GPU", "GANGS", "COST", "CREDENTIAL")
    entries = [_cluster(member, records) for member in members]
    return columns((*head, "LAST SEEN", "MESSAGE"), [_cells(entry) for entry in entries])


def _cells(entry: dict[str, Any]) -> list[str]:
    """Return the table cells of a member cluster: NODES is ready/total, CPU and GPU are used/total."""
    nodes = entry["nodes"]
    first = [str(entry[key]) for key in ("name", "state", "active", "reason", "version")]
    devices = sorted(name for name in entry["allocatable"] if name.endswith("/gpu"))
    return [
        *first,
        f"{nodes['ready']}/{nodes['total']}" if nodes["total"] is not None else "",
        _of(entry, "cpu"),
        ",".join(_of(entry, name) for name in devices),
        *(str(entry[key]) for key in ("gangs", "cost")),
        _expiry(entry["credentialExpires"]),
        str(entry["lastSeen"]),
        str(entry["message"]),
    ]


def _of(entry: dict[str, Any], resource: str) -> str:
    total = entry["allocatable"].get(resource)
    if total is None:
        return ""
    used = entry["used"].get(resource)
    return f"{used}/{total}" if used is not None else f"{total} in all"


def _expiry(moment: str) -> str:
    """Return the remaining validity of the hub's credential for a member cluster."""
    import time

    from phalanx.cli.listing.ages import span
    from phalanx.kube.timestamps import parse_time

    if not moment:
        return ""
    try:
        seconds = parse_time(moment) - time.time()
    except ValueError:
        return moment
    return f"{span(seconds)} left" if seconds > 0 else "expired"


def _gang_lines(records: list[dict[str, Any]]) -> list[str]:
    from phalanx.cli.columns import columns

    if not records:
        return ["No gangs are dispatched by the hub."]
    entries = [_gang(record) for record in records]
    rows = [
        [
            f"{entry['namespace']}/{entry['name']}",
            entry["phase"],
            entry["cluster"],
            str(entry["epoch"]),
            entry["message"],
        ]
        for entry in entries
    ]
    lines = columns(("GANG", "PHASE", "CLUSTER", "EPOCH", "MESSAGE"), rows)
    shown = lines[:1]
    for line, entry in zip(lines[1:], entries, strict=True):
        shown += [line, *_history(entry)]
    return shown


def _history(entry: dict[str, Any]) -> Iterator[str]:
    for attempt in entry["attempts"]:
        attempt_name = f"epoch {attempt['epoch']} in {attempt['cluster']}"
        yield f"  {attempt_name}: {attempt['outcome']} {attempt['message']}".rstrip()
    for answer in entry["answers"]:
        yield f"  {answer['cluster']}: starts {answer['start'] or 'never'} ({answer['message'] or 'no answer'})"
