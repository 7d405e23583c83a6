"""Table of the requests for nodes, open ones and those that ended without a node."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from phalanx.cluster.inqueue import InqueueResources
from phalanx.cluster.pods.records import GangRecord
from phalanx.model.gang import GangKey
from phalanx.model.node_request import NodeRequest


class NodeRequestTable:
    """Requests for nodes by the uid of their job. `version` changes with every change.

    The amounts of a gang with an open request count for no admission of other gangs: it waits for nodes that do not
    exist yet.
    """

    def __init__(self, inqueue: InqueueResources) -> None:
        self._inqueue = inqueue
        self._by_uid: dict[str, NodeRequest] = {}
        self.version = 0

    def __bool__(self) -> bool:
        return bool(self._by_uid)

    def __iter__(self) -> Iterator[NodeRequest]:
        return iter(list(self._by_uid.values()))

    def of(self, gang: GangRecord) -> NodeRequest | None:
        """Return the request of a gang or of an earlier gang of its job; None without one."""
        return self._by_uid.get(request_uid(gang))

    def open_for(self, key: GangKey) -> NodeRequest | None:
        """Return the open request of a gang; None without one."""
        return next((entry for entry in self._by_uid.values() if entry.open and entry.key == key), None)

    def put(self, request: NodeRequest) -> None:
        former = self._by_uid.get(request.uid)
        if former == request:
            return
        if former is not None and former.open and (former.key != request.key or not request.open):
            self._inqueue.set_requesting_nodes(former.key, False)
        self._by_uid[request.uid] = request
        if request.open:
            self._inqueue.set_requesting_nodes(request.key, True)
        self.version += 1

    def drop(self, request: NodeRequest) -> None:
        if self._by_uid.pop(request.uid, None) is not None:
            self._inqueue.set_requesting_nodes(request.key, False)
            self.version += 1

    def restore(self, requests: Iterable[NodeRequest]) -> None:
        """Add the requests of an earlier process; those of this process have precedence."""
        for request in requests:
            if request.uid not in self._by_uid:
                self.put(request)

    def replace(self, requests: Iterable[NodeRequest]) -> None:
        """Take over the requests of the process that plans, for a dry run."""
        wanted = {request.uid: request for request in requests}
        for request in self:
            if request.uid not in wanted:
                self.drop(request)
        for request in wanted.values():
            self.put(request)

    def entries(self) -> list[NodeRequest]:
        """Return all requests, sorted by uid."""
        return [self._by_uid[uid] for uid in sorted(self._by_uid)]


def request_uid(gang: GangRecord) -> str:
    """Return the uid under which a gang requests nodes: of its job, else of its declaring object, else its path."""
    spec = gang.spec
    if spec is None:
        return gang.key.path
    return (spec.owner.uid if spec.owner is not None else "") or spec.uid or gang.key.path
