"""Debug pages of a running scheduler: its state, a comparison with the API server, and the last transitions of
pods."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping
from typing import Any

from phalanx.cluster.pods.records import PodRecord
from phalanx.cluster.pods.states import PodState, state_of_record
from phalanx.cluster.state import ClusterState
from phalanx.daemon.decision_log import DecisionLog
from phalanx.kube.client import KubeClient
from phalanx.kube.core_resources import NODES, PODS
from phalanx.kube.timestamps import format_time
from phalanx.model.gang import GangKey
from phalanx.model.pod import MemberState
from phalanx.scheduling.scheduler import Scheduler

#: Maximum number of named objects per kind of difference.
_MOST_NAMED = 100
_HERE = {PodState.BOUND, PodState.RUNNING, PodState.EVICTING, PodState.TERMINATING}


def state_dump(state: ClusterState, scheduler: Scheduler) -> dict[str, Any]:
    """Return sizes and sums of the scheduler's state, without names of pods."""
    gangs = {
        key.path: {
            name: count
            for name in ("pending", "gated", "assumed", "bound", "running", "terminating", "succeeded", "failed")
            if (count := getattr(gang.counts(), name))
        }
        for key, gang in state.gangs.items()
    }
    return {
        "nodes": len(state.nodes),
        "pods": dict(sorted(Counter(state_of_record(pod).name.lower() for pod in state.pods.values()).items())),
        "classes": len(state.classes),
        "offered": state.offered(),
        "queue": scheduler.queue.pending_counts(),
        "version": state.version,
        "gangs": gangs,
        "accounts": {
            str(key): {"used": record.used, "pending": record.pending}
            for key, record in state.ledger.accounts.items()
            if record.used or record.pending
        },
        "selfCheck": list(state.ledger.discrepancies(state.pods.values())),
    }


async def compared_with_api(client: KubeClient, state: ClusterState, pause: float = 1.0) -> dict[str, Any]:
    """Return the differences between the scheduler's state and the lists of the API server.

    Changes on their way look like differences for a moment: only objects that differ again after `pause` seconds
    count.
    """
    differences = await _differences(client, state)
    if any(differences.values()):
        await asyncio.sleep(pause)
        repeated = await _differences(client, state)
        differences = {kind: names & repeated[kind] for kind, names in differences.items()}
    return {
        "equal": not any(differences.values()),
        **{
            kind: {"count": len(names), "first": sorted(names)[:_MOST_NAMED]} for kind, names in differences.items()
        },
    }


async def _differences(client: KubeClient, state: ClusterState) -> dict[str, set[str]]:
    listed: dict[str, Mapping[str, Any]] = {
        item["metadata"]["uid"]: item for item in (await client.list_all(PODS.path()))["items"]
    }
    nodes = {item["metadata"]["name"] for item in (await client.list_all(NODES.path()))["items"]}
    known = {name for name, node in zip(state.nodes.names, state.nodes.nodes, strict=False) if node is not None}
    unknown, elsewhere = set[str](), set[str]()
    for uid, item in listed.items():
        name = f"{item['metadata']['namespace']}/{item['metadata']['name']}"
        record = state.pods.get(uid)
        if record is None:
            unknown.add(name)
        elif state_of_record(record) in _HERE and record.pod.node != (item["spec"].get("nodeName") or ""):
            elsewhere.add(name)
    gone = {record.pod.key for uid, record in state.pods.items() if uid not in listed and not record.pod.expires}
    return {
        "podsUnknownHere": unknown,
        "podsGoneThere": gone,
        "podsElsewhere": elsewhere,
        "nodesUnknownHere": nodes - known,
        "nodesGoneThere": known - nodes,
    }


def pod_story(state: ClusterState, decisions: DecisionLog, namespace: str, name: str) -> dict[str, Any] | None:
    """Return the state of the pods with a name, their last transitions (oldest first), and the wake-ups of their
    cycles.

    None if no such pod is known.
    """
    records = {uid: record for uid, record in state.pods.items() if record.pod.key == f"{namespace}/{name}"}
    if not records:
        return None
    states = [_state_of_pod(record, decisions) for record in records.values()]
    steps = [
        {
            "time": format_time(step.time),
            "event": step.event.name,
            "from": step.before.name,
            "to": step.after.name,
            "cause": step.cause,
            "uid": step.uid,
        }
        for step in state.pods.stories.of_pods(records)
    ]
    decided = [*steps, *(entry["verdict"] for entry in states if "verdict" in entry)]
    causes = decisions.wakes(dict.fromkeys(entry["cause"] for entry in decided if entry["cause"]))
    return {"pod": f"{namespace}/{name}", "now": states, "steps": steps, "causes": causes}


def _state_of_pod(record: PodRecord, decisions: DecisionLog) -> dict[str, Any]:
    """Return the state of a pod; for a pending pod also the last verdict about it or its gang."""
    fields: dict[str, Any] = {"uid": record.pod.uid, "state": state_of_record(record).name}
    if record.pod.node:
        fields["node"] = record.pod.node
    if record.state is not MemberState.PENDING:
        return fields
    subject: GangKey | str = record.pod.uid
    verdict, gang = record.last_verdict, record.gang
    if verdict is None and gang is not None and gang.last_verdict is not None:
        subject, verdict = gang.key, gang.last_verdict[0]
    if verdict is not None:
        cause = decisions.judged(subject)
        fields["verdict"] = {"reason": verdict.code, "message": verdict.message, "cause": cause}
    return fields
