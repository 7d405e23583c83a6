"""Scope of one viewer: the namespaces, nodes, queues, events and clusters that the viewer can see."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import msgspec

from phalanx.dashboard.access import Login, Right, Viewer, ViewerAccessError
from phalanx.dashboard.watch import ClusterWatch
from phalanx.hub.names import DISPATCHES, MEMBER_CLUSTERS
from phalanx.kube.paths import Resource
from phalanx.reports.jobs.kinds import QUEUES

_EVERY_GANG = Right("list", "pods")
_NODES = Right("list", "nodes")
_EVENTS = "events"
_CLUSTERS = Right("list", MEMBER_CLUSTERS.plural, MEMBER_CLUSTERS.group)
_QUEUES = Resource(QUEUES.group, QUEUES.version, QUEUES.plural, QUEUES.kind, namespaced=False)
_NAME = re.compile(r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")
# Limit of queues that are checked by single access reviews.
_MOST_QUEUES = 100


class Audience(NamedTuple):
    """Rights of a scope without the viewer's name; equal audiences receive equal data."""

    namespace: str
    everything: bool
    nodes: bool
    evictions: bool
    queues: frozenset[str] | None
    clusters: bool
    dispatches: bool
    own_queues: frozenset[str]


class Scope(msgspec.Struct):
    """Part of the cluster that a viewer can see.

    `namespace` is the only visible namespace, "" for all. `queues` are the queues that the viewer has the right to
    get, None for all; `own_queues` are those of the gangs of `namespace`, of which the present numbers are visible.
    `clusters` and `dispatches` tell whether a hub's member clusters and dispatches are visible.
    """

    viewer: Viewer
    namespace: str = ""
    everything: bool = True
    nodes: bool = True
    evictions: bool = True
    queues: frozenset[str] | None = None
    clusters: bool = True
    dispatches: bool = True
    own_queues: frozenset[str] = frozenset()

    @property
    def audience(self) -> Audience:
        return Audience(
            self.namespace,
            self.everything,
            self.nodes,
            self.evictions,
            self.queues,
            self.clusters,
            self.dispatches,
            self.own_queues,
        )

    def sees_queue(self, name: str) -> bool:
        """Return whether the viewer can see the present numbers of a queue."""
        return self.queues is None or name in self.queues or name in self.own_queues

    def sees(self, table: str) -> Any:
        """Return a predicate of row scopes: whether the viewer can see a table's rows with this scope."""
        if table == "summary":
            return lambda scope: True
        if table == "queues":
            return self.sees_queue
        if table == "nodes":
            return lambda scope: self.nodes
        if table == "clusters":
            return lambda scope: self.clusters
        if (table == "evictions" and not self.evictions) or (table == "dispatches" and not self.dispatches):
            return lambda scope: False
        if self.namespace:
            return lambda scope: scope == self.namespace
        return lambda scope: self.everything

    def omitted(self, table: str) -> list[str]:
        """Return messages about the parts of a table that the viewer cannot see."""
        if table == "nodes" and not self.nodes:
            return ["nodes: you lack the right to list nodes"]
        if table == "queues" and self.queues is not None:
            return ["queues: you see those of your gangs and those that you have the right to get"]
        if table == "evictions" and not self.evictions:
            return ["evictions: you lack the right to list events here"]
        if table == "reservations" and not self.everything:
            return ["reservations and maintenance: you lack the right to list pods in all namespaces"]
        if table == "clusters":
            return [] if self.clusters else ["clusters: you lack the right to list memberclusters"]
        if table == "dispatches" and not self.dispatches:
            return ["gangs: you lack the right to list dispatches here"]
        return [f"namespaces other than {self.namespace}"] if self.namespace and table != "summary" else []


async def scope_of(
    login: Login, viewer: Viewer, namespace: str, watch: ClusterWatch, *, again: bool = False
) -> Scope:
    """Return the scope of a viewer for a namespace ("" for the largest scope that the viewer has). Raises
    ViewerAccessError.

    The refusal is the same for existing and missing namespaces. `again` renews the scope of an open page: cached
    refusals then live longer, because a new right need not show at once.
    """
    if namespace and (len(namespace) > 63 or not _NAME.match(namespace)):
        raise ViewerAccessError(400, "invalid name of a namespace")
    if viewer.trusted:
        return Scope(viewer, namespace)
    everything = await login.may(viewer, _EVERY_GANG, again=again)
    if not everything:
        namespace = namespace or viewer.home
        if not namespace:
            raise ViewerAccessError(
                403, "you lack the right to list pods in all namespaces: select one of your namespaces"
            )
        here = Right("list", "pods", namespace=namespace)
        if not await login.may(viewer, here, again=again):
            raise ViewerAccessError(403, f"you lack the right to {here.words}")
    where = "" if everything else namespace
    events = Right("list", _EVENTS, namespace=where)
    dispatches = Right("list", DISPATCHES.plural, DISPATCHES.group, namespace=where)
    return Scope(
        viewer,
        namespace,
        everything,
        await login.may(viewer, _NODES, again=again),
        await login.may(viewer, events, again=again),
        await _queues(login, viewer, namespace, everything, watch, again),
        # Rights on hub objects are reviewed only if the cluster is a hub.
        watch.clusters.hub and await login.may(viewer, _CLUSTERS, again=again),
        watch.clusters.hub and await login.may(viewer, dispatches, again=again),
        watch.own_queues.of(namespace, watch.generation),
    )


async def _queues(
    login: Login, viewer: Viewer, namespace: str, everything: bool, watch: ClusterWatch, again: bool
) -> frozenset[str] | None:
    if await login.may(viewer, Right("list", _QUEUES.plural, _QUEUES.group), again=again):
        return None
    names: set[str] = set()
    for key, record in watch.state.gangs.items():
        if (everything or key.namespace == namespace) and record.spec is not None and record.spec.queue:
            names.add(record.spec.queue)
    return frozenset(
        [
            name
            for name in sorted(names)[:_MOST_QUEUES]
            if await login.may(viewer, Right("get", _QUEUES.plural, _QUEUES.group, name=name), again=again)
        ]
    )
