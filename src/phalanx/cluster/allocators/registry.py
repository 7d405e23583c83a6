"""Registry of the cluster's node allocators, one per kind."""

from __future__ import annotations

from typing import TYPE_CHECKING

from phalanx.cluster.allocators.base import NodeAllocator
from phalanx.cluster.allocators.node_groups import NodeGroups
from phalanx.cluster.allocators.ports import Ports
from phalanx.cluster.devices.claims import DeviceClaims
from phalanx.cluster.devices.numa import NumaNodes
from phalanx.cluster.devices.shared import SharedDevices
from phalanx.cluster.volumes.attachments import Attachments
from phalanx.cluster.volumes.disks import Disks
from phalanx.cluster.volumes.supply import VolumeSupply

if TYPE_CHECKING:
    from phalanx.cluster.nodes.rows import NodeRows


def node_allocators(nodes: NodeRows) -> dict[str, NodeAllocator]:
    """Return new, empty allocators by name."""
    allocators: tuple[NodeAllocator, ...] = (
        Ports(nodes),
        Disks(nodes),
        Attachments(nodes),
        VolumeSupply(nodes),
        SharedDevices(nodes),
        NodeGroups(nodes),
        NumaNodes(nodes),
        DeviceClaims(nodes),
    )
    return {allocator.name: allocator for allocator in allocators}
