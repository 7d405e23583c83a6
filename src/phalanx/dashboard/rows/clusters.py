"""Rows of a hub's member clusters and dispatches, from the hub's objects."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable
from typing import Any

from phalanx.dashboard.rows.entries import ClusterRow, DispatchRow
from phalanx.dashboard.tables import Tables
from phalanx.hub.dispatch import Phase
from phalanx.hub.dispatch_answer import dispatch_answer
from phalanx.hub.names import DISPATCHES, MEMBER_CLUSTERS
from phalanx.hub.objects import Json, StoredObject, printable, read_object
from phalanx.kube.changes import Change, Delete, Upsert
from phalanx.kube.client import KubeClient
from phalanx.kube.failures import Failures
from phalanx.kube.reflector import Reflector, ReflectorState


class Clusters:
    """Watcher of MemberClusters and Dispatches, if the API serves them.

    It calls `changed` after changes of rows.
    """

    def __init__(self, client: KubeClient, tables: Tables, changed: Callable[[], None], failures: Failures) -> None:
        self._rows, self._dispatches = tables["clusters"], tables["dispatches"]
        self._changed = changed
        self._members: dict[str, Json] = {}
        # Per dispatched gang: its cluster, its phase, and whether the cluster answers.
        self._places: dict[str, tuple[str, str, bool]] = {}
        self._counts: defaultdict[str, Counter[tuple[str, bool]]] = defaultdict(Counter)
        self._of_members: Reflector[StoredObject | None] = Reflector(
            client, MEMBER_CLUSTERS, read_object, self._member, optional=True, failures=failures
        )
        of_dispatches: Reflector[StoredObject | None] = Reflector(
            client, DISPATCHES, read_object, self._dispatch, optional=True, failures=failures
        )
        self.reflectors: list[Reflector[Any]] = [self._of_members, of_dispatches]

    @property
    def hub(self) -> bool:
        """Whether this cluster is a hub, so that the API serves MemberClusters."""
        return self._of_members.state is not ReflectorState.ABSENT and self._of_members.synced.is_set()

    def _member(self, change: Change[StoredObject | None]) -> None:
        if isinstance(change, Upsert) and change.object is not None:
            self._members[change.object.name] = change.object.document
            self._put(change.object.name)
        elif isinstance(change, Delete):
            self._members.pop(change.key[1], None)
            self._rows.drop(change.key[1])
        self._changed()

    def _dispatch(self, change: Change[StoredObject | None]) -> None:
        if isinstance(change, Upsert) and change.object is not None:
            document = change.object
            row = f"{document.namespace}/{document.name}"
            answer = dispatch_answer(document.document)
            content = DispatchRow(
                id=row,
                namespace=document.namespace,
                name=answer.gang.partition("/")[2],
                created=str(document.document["metadata"].get("creationTimestamp") or ""),
                dispatch=answer,
            )
            self._dispatches.put(row, content, document.namespace)
            self._place(row, (answer.cluster, answer.phase, bool(answer.unknownSince)))
        elif isinstance(change, Delete):
            row = "/".join(change.key)
            self._dispatches.drop(row)
            self._place(row, None)
        self._changed()

    def _place(self, row: str, place: tuple[str, str, bool] | None) -> None:
        if place is not None and (not place[0] or place[1] == Phase.ENDED.value):
            place = None
        former = self._places.get(row)
        if former == place:
            return
        if former is not None:
            del self._places[row]
            self._counts[former[0]][former[1:]] -= 1
            self._put(former[0])
        if place is not None:
            self._places[row] = place
            self._counts[place[0]][place[1:]] += 1
            self._put(place[0])

    def _put(self, name: str) -> None:
        member = self._members.get(name)
        if member is None:
            return
        spec, status = member.get("spec") or {}, member.get("status") or {}
        conditions = status.get("conditions")
        by_type: dict[object, Json] = {
            condition.get("type"): condition
            for condition in (conditions if isinstance(conditions, list) else ())
            if isinstance(condition, dict)
        }
        active, nodes = by_type.get("Active", {}), _part(status, "nodes")
        here = self._counts[name]
        phases = {phase: sum(here[phase, known] for known in (False, True)) for phase, _ in sorted(here)}
        row = ClusterRow(
            id=name,
            state=printable(spec.get("state", "Active")),
            active=printable(active.get("status", "Unknown")),
            reason=printable(active.get("reason", "NotSeenByHub")),
            message=printable(active.get("message", "")),
            last_seen=printable(status.get("lastSeen", "")),
            cost=_number(spec.get("cost")),
            gangs={phase: count for phase, count in phases.items() if count},
            unknown=sum(count for (_, unknown), count in here.items() if unknown),
            version=printable(status.get("version", "")),
            nodes=_number(nodes.get("total")),
            ready=_number(nodes.get("ready")),
            offered=_texts(_part(status, "allocatable")),
            used=_texts(_part(status, "used")),
            credential_expires=printable(status.get("credentialExpires", "")),
            credential_ends=by_type.get("CredentialExpires", {}).get("status") == "True",
        )
        self._rows.put(name, row)


def _part(document: Json, name: str) -> Json:
    value = document.get(name)
    return value if isinstance(value, dict) else {}


def _number(value: object) -> int:
    return value if isinstance(value, int) else 0


def _texts(amounts: Json) -> dict[str, str]:
    return {printable(name): printable(amount) for name, amount in amounts.items()}
