"""Events about pods whose annotations name cards that they cannot have."""

from __future__ import annotations

from phalanx.cluster.devices.cards import CardPolicy
from phalanx.cluster.devices.shared import SHARED_DEVICES, SharedDevices
from phalanx.cluster.state import ClusterState
from phalanx.model.devices.cards import Card, CardShare, DeviceNeed, Family
from phalanx.model.events import NodeUpdated, PodRemoved, PodUpdated
from phalanx.model.node import Node
from phalanx.model.pod import Pod, PodClass
from phalanx.status.warnings.distrusted_devices import DistrustedDevices

NEED = DeviceNeed(Family.VGPU, (CardShare(memory=600),))


def pod(uid: str, *cards: str) -> Pod:
    return Pod("ns", uid, uid, PodClass(devices=NEED), node="n", cards=cards)


class TestDoubts:
    def setup_method(self) -> None:
        self.state, self.count = ClusterState(), 0
        allocator = self.state.nodes.allocators[SHARED_DEVICES]
        assert isinstance(allocator, SharedDevices)
        self.allocator = allocator
        self.doubts = DistrustedDevices(self.state, self.counted)
        self.state.apply(NodeUpdated(Node("n", cards=(Card(Family.VGPU, "GPU-1", 1000, 10),))))

    def counted(self) -> None:
        self.count += 1

    def told(self) -> list[str]:
        return [notice.about.name for notice in self.doubts.new_warnings()]

    def test_each_doubt_is_reported_and_counted_once(self) -> None:
        self.allocator.configure(Family, CardPolicy.LAST)
        self.state.apply(PodUpdated(pod("liar", "GPU-1", "GPU-2")))
        self.state.apply(PodUpdated(pod("honest", "GPU-1")))
        assert self.told() == ["liar"]
        assert self.told() == []
        assert self.count == 1
        self.state.apply(PodRemoved("liar"))
        assert self.told() == []
        self.state.apply(PodUpdated(pod("liar")))
        assert self.told() == ["liar"]

    def test_cards_that_another_component_allocates_are_not_reported(self) -> None:
        self.state.apply(PodUpdated(pod("liar", "GPU-1", "GPU-2")))
        assert self.told() == []
