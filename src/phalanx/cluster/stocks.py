"""The stocks that a cluster has, each kind once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from phalanx.cluster.attachments import Attachments
from phalanx.cluster.device_claims import CLAIMS, DeviceClaims
from phalanx.cluster.devices import SharedDevices
from phalanx.cluster.disks import Disks
from phalanx.cluster.node_groups import NodeGroups
from phalanx.cluster.numa import NumaNodes
from phalanx.cluster.ports import Ports
from phalanx.cluster.stock import Stock
from phalanx.cluster.volume_supply import VolumeSupply

if TYPE_CHECKING:
    from phalanx.cluster.nodes import NodeTable


def stocks_of(nodes: NodeTable) -> dict[str, Stock]:
    """name -> books, empty."""
    stocks: tuple[Stock, ...] = (
        Ports(nodes),
        Disks(nodes),
        Attachments(nodes),
        VolumeSupply(nodes),
        SharedDevices(nodes),
        NodeGroups(nodes),
        NumaNodes(nodes),
        DeviceClaims(nodes),
    )
    return {stock.name: stock for stock in stocks}


def lingers(nodes: NodeTable, uid: str) -> bool:
    """Whether a pod that has left still holds something by what the API shows."""
    claims = nodes.stocks[CLAIMS]
    assert isinstance(claims, DeviceClaims)
    return claims.lingers(uid)
