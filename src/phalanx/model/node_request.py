"""Requests for nodes: gangs whose pods exist so that an autoscaler of nodes sees them."""

from __future__ import annotations

import msgspec

from phalanx.model.gang import GangKey

#: Condition of a PodGroup whose admission was withdrawn: its controller deletes the pods that have no node.
ADMISSION_WITHDRAWN = "phalanx.dev/AdmissionWithdrawn"


class NodeRequest(msgspec.Struct, frozen=True, omit_defaults=True):
    """Request of one gang for nodes; times are in seconds since the epoch.

    `uid` identifies the job of the gang (its owner, else its declaring object), `namespace` and `name` are the key
    of the gang, and `unit` is the name of the first gang that starts together with it. An `open` request ends at
    `until` unless a node comes before; `best` is the largest number of its members that fitted at once. A request
    that ended, at the time `ended`, is repeated at `until` at the earliest. `failures` counts the requests that
    ended without a node.
    """

    uid: str
    namespace: str
    name: str
    unit: str
    since: int
    until: int
    open: bool = True
    best: int = 0
    failures: int = 0
    ended: int = 0

    @property
    def key(self) -> GangKey:
        return GangKey(self.namespace, self.name)
