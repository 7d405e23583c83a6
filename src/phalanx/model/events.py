"""What the world tells `ClusterState`: small frozen facts, applied one by one."""

from __future__ import annotations

import msgspec

from phalanx.model.gang import Gang, GangKey
from phalanx.model.node import Node
from phalanx.model.pod import Pod


class NodeUpdated(msgspec.Struct, frozen=True):
    node: Node


class NodeRemoved(msgspec.Struct, frozen=True):
    name: str


class PodUpdated(msgspec.Struct, frozen=True):
    pod: Pod


class PodRemoved(msgspec.Struct, frozen=True):
    uid: str


class GangUpdated(msgspec.Struct, frozen=True):
    gang: Gang


class GangRemoved(msgspec.Struct, frozen=True):
    key: GangKey


ClusterEvent = NodeUpdated | NodeRemoved | PodUpdated | PodRemoved | GangUpdated | GangRemoved
