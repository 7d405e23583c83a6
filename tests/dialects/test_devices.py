"""GPU shares as Volcano and Koordinator request, allocate and record them."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from phalanx.cluster.devices.annotations import annotations_of
from phalanx.dialects.core import decode_node, decode_pod
from phalanx.dialects.devices.device_objects import DeviceObjects
from phalanx.dialects.enricher import ObjectChanges, no_changes
from phalanx.dialects.kinds import ServedKind
from phalanx.dialects.pods.decoder import PodDecoder, node_spec
from phalanx.model.devices.cards import Card, CardHold, CardShare, DeviceNeed, Family, NodeCards
from phalanx.model.events import AllocatorFact
from phalanx.model.node import Node
from phalanx.model.pod import Pod

VGPU, SHARE, KOORDINATOR = Family.VGPU, Family.GPU_SHARE, Family.KOORDINATOR


def limits(**amounts: object) -> dict[str, Any]:
    """Build a container with limits; `vgpu_number` is short for volcano.sh/vgpu-number."""
    named = {f"volcano.sh/{name.replace('_', '-')}": amount for name, amount in amounts.items()}
    return {"name": "c", "resources": {"limits": named, "requests": named}}


def koordinator(**amounts: object) -> dict[str, Any]:
    named = {f"koordinator.sh/{name.replace('_', '-')}": amount for name, amount in amounts.items()}
    shared = {key.replace("gpu-shared", "gpu.shared"): amount for key, amount in named.items()}
    return {"name": "c", "resources": {"limits": shared, "requests": shared}}


def pod(*containers: dict[str, Any], node: str = "", init: list[dict[str, Any]] | None = None, **notes: str) -> Pod:
    """Return annotations by the last part of their key."""
    keys = {
        "mode": "volcano.sh/vgpu-mode",
        "use": "volcano.sh/vgpu-use-gpuuuid",
        "nouse": "volcano.sh/vgpu-nouse-gpuuuid",
        "kind": "nvidia.com/use-gputype",
        "nokind": "nvidia.com/nouse-gputype",
        "policy": "volcano.sh/vgpu-podgroup-policy",
        "group": "scheduling.k8s.io/group-name",
        "ids": "volcano.sh/vgpu-ids-new",
        "index": "volcano.sh/gpu-index",
        "allocated": "scheduling.koordinator.sh/device-allocated",
        "hint": "scheduling.koordinator.sh/device-allocate-hint",
    }
    metadata = {"name": "p", "namespace": "ns", "annotations": {keys[key]: text for key, text in notes.items()}}
    spec = {"containers": list(containers), "initContainers": init or [], "nodeName": node}
    decoder = PodDecoder()
    decoded = decode_pod(msgspec.json.encode({"metadata": metadata, "spec": spec}))
    return decoder.pod(decoded, decoder.template(decoded), "")


def need(*containers: dict[str, Any], **notes: Any) -> DeviceNeed | None:
    return pod(*containers, **notes).pod_class.devices


def shares(*containers: dict[str, Any]) -> tuple[CardShare, ...]:
    found = need(*containers)
    assert found is not None
    return found.shares


class TestVolcanoVgpu:
    def test_number_memory_and_cores_are_per_container(self) -> None:
        first, second = limits(vgpu_number=2, vgpu_memory=3000, vgpu_cores=30), limits(vgpu_number="1")
        assert shares(first, {"name": "plain"}, second) == (
            CardShare(count=2, memory=3000, cores=30),
            CardShare(count=1, percent=100),  # a container without a memory request gets all memory
        )

    def test_memory_alone_requests_one_card(self) -> None:
        assert shares(limits(vgpu_memory="2k")) == (CardShare(memory=2000),)

    def test_percentage_overrides_memory_unless_it_is_101(self) -> None:
        asked = {"vgpu_number": 1, "vgpu_memory": 3000}
        assert shares(limits(**asked, vgpu_memory_percentage=40)) == (CardShare(percent=40),)
        assert shares(limits(**asked, vgpu_memory_percentage=101)) == (CardShare(memory=3000),)

    def test_zero_cards_are_no_request(self) -> None:
        assert need(limits(vgpu_number=0)) is None
        assert need(limits(vgpu_cores=10)) is None
        assert need({"name": "c", "resources": {"limits": {"nvidia.com/gpu": 1}}}) is None

    def test_annotations_restrict_the_choice_of_cards(self) -> None:
        wanted = limits(vgpu_number=1)
        assert need(wanted, mode="hami-core", use="GPU-2, GPU-1,", nouse="GPU-3") == DeviceNeed(
            VGPU, (CardShare(percent=100),), ids=("GPU-1", "GPU-2"), other_ids=("GPU-3",), mode="hami-core"
        )
        assert need(wanted, kind="A100,H100", nokind="V100") == DeviceNeed(
            VGPU, (CardShare(percent=100),), kinds=("A100", "H100")
        )
        assert need(wanted, nokind="V100") == DeviceNeed(VGPU, (CardShare(percent=100),), other_kinds=("V100",))

    def test_members_of_a_group_can_request_different_cards(self) -> None:
        spread = need(limits(vgpu_number=1), policy="spread", group="g")
        assert spread is not None
        assert spread.group == "ns/g"
        for alike in ({"policy": "binpack", "group": "g"}, {"policy": "spread"}, {"group": "g"}):
            assert need(limits(vgpu_number=1), **alike) == DeviceNeed(VGPU, (CardShare(percent=100),))

    def test_accounts_and_nodes_are_charged_for_every_card(self) -> None:
        asked = limits(vgpu_number=2, vgpu_memory=3000, vgpu_cores=30)
        requests = dict(pod(asked, limits(vgpu_number=1, vgpu_memory=500)).pod_class.requests)
        assert requests == {
            "volcano.sh/vgpu-number": 3,
            "volcano.sh/vgpu-memory": 6500,
            "volcano.sh/vgpu-cores": 60,
        }
        assert dict(pod(asked).usage) == dict(pod(asked).pod_class.requests)

    def test_unreadable_vgpu_request_is_reported(self) -> None:
        wrong = pod(limits(vgpu_number="many"))
        assert "cannot be read" in (wrong.pod_class.devices or DeviceNeed(VGPU)).problem
        assert "'many' is not a quantity" in wrong.problem


class TestVolcanoGpuShare:
    def test_memory_of_all_containers_is_allocated_on_one_card(self) -> None:
        assert need(limits(gpu_memory=1000), limits(gpu_memory=24), init=[limits(gpu_memory=500)]) == DeviceNeed(
            SHARE, (CardShare(memory=1024),)
        )
        assert need({"name": "c"}, init=[limits(gpu_memory=500)]) == DeviceNeed(SHARE, (CardShare(memory=500),))

    def test_number_requests_whole_cards(self) -> None:
        assert need(limits(gpu_number=2)) == DeviceNeed(SHARE, (CardShare(count=2, percent=100, cores=100),))


class TestKoordinator:
    @pytest.mark.parametrize(
        ("asked", "share"),
        [
            ({"gpu": 50}, CardShare(percent=50, cores=50)),
            ({"gpu": 200}, CardShare(count=2, percent=100, cores=100)),
            ({"gpu_memory": "8Gi"}, CardShare(memory=8 * 2**30)),
            ({"gpu_memory_ratio": 30}, CardShare(percent=30)),
            ({"gpu_core": 20, "gpu_memory": 100}, CardShare(memory=100, cores=20)),
            ({"gpu_core": 200, "gpu_memory_ratio": 200}, CardShare(count=2, percent=100, cores=100)),
            (
                {"gpu_shared": 2, "gpu_core": 100, "gpu_memory_ratio": 60},
                CardShare(count=2, percent=30, cores=50),
            ),
            ({"gpu_shared": 4, "gpu_memory": 400}, CardShare(count=4, memory=100)),
        ],
    )
    def test_shares_are_counted_as_koordinator_does(self, asked: dict[str, object], share: CardShare) -> None:
        assert need(koordinator(**asked)) == DeviceNeed(KOORDINATOR, (share,))

    @pytest.mark.parametrize(
        ("asked", "problem"),
        [
            ({"gpu": 150}, "koordinator.sh/gpu 150 is more than 100 and not a multiple of it"),
            ({"gpu": 50, "gpu_core": 50}, "cannot be requested together"),
            ({"gpu_core": 50}, "koordinator.sh/gpu-core cannot be requested together"),
            ({"gpu_shared": 3, "gpu_memory_ratio": 100}, "cannot be shared out evenly over 3 GPUs"),
            ({"gpu_shared": 1, "gpu_core": 200, "gpu_memory": 1}, "cannot be shared out evenly over 1 GPUs"),
        ],
    )
    def test_request_that_koordinator_refuses_is_refused(self, asked: dict[str, object], problem: str) -> None:
        found = need(koordinator(**asked))
        assert found is not None
        assert problem in found.problem

    def test_unsupported_rules_are_refused_and_not_ignored(self) -> None:
        found = need(koordinator(gpu=50), hint='{"gpu": {}}')
        assert found is not None
        assert "device-allocate-hint is not supported" in found.problem

    def test_device_objects_are_read_as_cards(self) -> None:
        facet, kind = DeviceObjects(), ServedKind("scheduling.koordinator.sh", "v1alpha1", "devices", "Device")

        def gpu(minor: int, **fields: Any) -> dict[str, Any]:
            resources = {"koordinator.sh/gpu-core": "100", "koordinator.sh/gpu-memory": "16Gi"}
            return {"type": "gpu", "minor": minor, "health": True, "resources": resources, **fields}

        model = {"node.koordinator.sh/gpu-model": "A100"}
        devices = [gpu(1, health=False), gpu(0, labels=model), {"type": "rdma", "minor": 0}, {"type": "gpu"}]
        document = {"metadata": {"name": "n1"}, "spec": {"devices": devices}}
        cards = (
            Card(KOORDINATOR, "0", 16 * 2**30, 2**31, "A100"),
            Card(KOORDINATOR, "1", 16 * 2**30, 2**31, healthy=False),
        )
        news = [AllocatorFact("shared-devices", NodeCards("n1", KOORDINATOR, cards))]
        assert facet.updated(kind, document)[0] == news
        assert facet.updated(kind, document) == no_changes()
        gone = [AllocatorFact("shared-devices", NodeCards("n1", KOORDINATOR))]
        assert facet.unserved(kind)[0] == gone
        assert facet.removed(kind, "", "n1") == no_changes()


def shown_anew(news: ObjectChanges, *pods: Pod) -> list[Pod]:
    _, which = news
    return [each for each in pods if (which(each) if callable(which) else each.uid in which)]


class TestWholeGpus:
    """Where Device objects describe cards, pods with whole GPUs get theirs from them."""

    KIND = ServedKind("scheduling.koordinator.sh", "v1alpha1", "devices", "Device")

    def device(self, *minors: int) -> dict[str, Any]:
        resources = {"koordinator.sh/gpu-memory": "16Gi"}
        devices = [{"type": "gpu", "minor": minor, "health": True, "resources": resources} for minor in minors]
        return {"metadata": {"name": "n1"}, "spec": {"devices": devices}}

    def test_pods_are_updated_when_the_first_card_is_added_and_the_last_removed(self) -> None:
        facet = DeviceObjects()
        whole = pod({"name": "c", "resources": {"limits": {"nvidia.com/gpu": "2"}}})
        without = pod({"name": "c"})
        assert facet.enriched(whole, None) is whole
        assert shown_anew(facet.updated(self.KIND, self.device(0)), whole, without) == [whole]
        asked = DeviceNeed(KOORDINATOR, (CardShare(count=2, percent=100, cores=100),), lenient=True)
        assert facet.enriched(whole, None).pod_class.devices == asked
        assert shown_anew(facet.updated(self.KIND, self.device(0, 1)), whole, without) == []
        assert shown_anew(facet.removed(self.KIND, "", "n1"), whole, without) == [whole]
        assert facet.enriched(whole, None) is whole

    def test_pods_without_gpus_and_with_gpu_shares_are_not_updated(self) -> None:
        facet = DeviceObjects()
        facet.updated(self.KIND, self.device(0))
        for other in (pod({"name": "c"}), pod(koordinator(gpu=50)), pod(limits(vgpu_number=1))):
            assert facet.enriched(other, None) is other

    def test_allocated_whole_gpus_are_read(self) -> None:
        text = '{"gpu": [{"minor": 1, "resources": {"koordinator.sh/gpu-core": "100"}}]}'
        whole = {"name": "c", "resources": {"limits": {"nvidia.com/gpu": "1"}}}
        assert pod(whole, node="n1", allocated=text).cards == ("1",)


def node(annotations: dict[str, str], **status: Any) -> Node:
    metadata = {"name": "n", "annotations": annotations}
    return node_spec(decode_node(msgspec.json.encode({"metadata": metadata, "status": status})))


OFFER = {"volcano.sh/vgpu-number": 20, "volcano.sh/vgpu-memory": 64000, "volcano.sh/vgpu-cores": 200}
REGISTER = "volcano.sh/node-vgpu-register"


class TestNodes:
    def test_device_plugin_registers_cards(self) -> None:
        text = "GPU-1,10,32000,NVIDIA-V100,true,hami-core:GPU-2,10,32000,NVIDIA-V100,false,hami-core:"
        found = node({REGISTER: text}, allocatable=OFFER)
        card = Card(VGPU, "GPU-1", 32000, 10, "NVIDIA-V100", "hami-core")
        assert found.cards == (card, msgspec.structs.replace(card, id="GPU-2", healthy=False))
        assert dict(found.allocatable)["volcano.sh/vgpu-memory-percentage"] == 100

    def test_older_device_plugins_state_no_mode(self) -> None:
        (card,) = node({REGISTER: "GPU-1,10,32000,NVIDIA-V100,true:"}, allocatable=OFFER).cards
        assert (card.mode, card.healthy) == ("hami-core", True)

    def test_cards_in_mig_mode_are_not_allocated(self) -> None:
        (card,) = node({REGISTER: "GPU-1,10,32000,NVIDIA-A100,true,mig:"}, allocatable=OFFER).cards
        assert (card.mode, card.healthy) == ("mig", False)

    def test_cards_that_the_annotation_of_hami_lists_are_cordoned(self) -> None:
        text = "GPU-1,10,32000,V100,true:GPU-2,10,32000,V100,true:GPU-3,10,32000,V100,true:"
        for listed in ("GPU-1,GPU-3", " GPU-3 ,, GPU-1,", "GPU-1,GPU-3,GPU-unknown"):
            found = node({REGISTER: text, "hami.io/device-cordon": listed}, allocatable=OFFER)
            assert [card.id for card in found.cards if card.cordoned] == ["GPU-1", "GPU-3"]
            assert not found.problems

    def test_node_of_a_device_plugin_without_devices_has_no_cards(self) -> None:
        text = "GPU-1,10,32000,NVIDIA-V100,true,hami-core:"
        for name in OFFER:
            assert node({REGISTER: text}, allocatable={**OFFER, name: 0}).cards == ()

    def test_unreadable_card_affects_no_other_card(self) -> None:
        found = node({REGISTER: "GPU-1,ten,32000,V100,true:GPU-2,10,32000,V100,true:"}, allocatable=OFFER)
        assert [card.id for card in found.cards] == ["GPU-2"]
        assert "'GPU-1,ten,32000,V100,true' is not a GPU" in found.problems[0]

    def test_first_gpu_sharing_counts_equal_cards(self) -> None:
        capacity = {"volcano.sh/gpu-memory": "3000", "volcano.sh/gpu-number": "3"}
        found = node({"volcano.sh/gpu-unhealthy-ids": "1"}, capacity=capacity)
        assert [(card.id, card.memory, card.healthy) for card in found.cards] == [
            ("0", 1000, True),
            ("1", 1000, False),
            ("2", 1000, True),
        ]


class TestRecordedAllocations:
    """The annotations of a binding are read back as the same allocation."""

    def test_recorded_vgpu_allocation_is_read_back(self) -> None:
        asked = DeviceNeed(VGPU, (CardShare(count=2, memory=300, cores=30), CardShare(memory=10)))
        one, two = CardHold(VGPU, "GPU-1", 300, 30), CardHold(VGPU, "GPU-2", 300, 30)
        three = CardHold(VGPU, "GPU-2", 10, 0)
        told = dict(annotations_of(asked, ((one, two), (three,)), "n1", {}, 1000.7))
        assert told == {
            "volcano.sh/vgpu-node": "n1",
            "volcano.sh/vgpu-time": "1000",
            "volcano.sh/vgpu-ids-new": "GPU-1,NVIDIA,300,30:GPU-2,NVIDIA,300,30:;GPU-2,NVIDIA,10,0:",
            "volcano.sh/devices-to-allocate": "GPU-1,NVIDIA,300,30:GPU-2,NVIDIA,300,30:;GPU-2,NVIDIA,10,0:",
            "volcano.sh/bind-phase": "allocating",
            "volcano.sh/bind-time": "1000",
        }
        ids = told["volcano.sh/vgpu-ids-new"]
        assert pod(limits(vgpu_number=2), node="n1", ids=ids).cards == ("GPU-1", "GPU-2", "GPU-2")
        assert pod(limits(vgpu_number=2), ids=ids).cards == ()

    def test_instances_of_a_divided_card_are_charged_to_the_card(self) -> None:
        ids = "GPU-1[1g.5gb-0],NVIDIA,5000,0:odd,1:"
        assert pod(limits(vgpu_number=1), node="n", ids=ids).cards == ("GPU-1",)

    def test_recorded_gpu_share_is_read_back(self) -> None:
        hold = CardHold(SHARE, "3", 500, 0)
        asked = DeviceNeed(SHARE, (CardShare(memory=500),))
        told = dict(annotations_of(asked, ((hold,),), "n1", {}, 1.5))
        assert told == {"volcano.sh/predicate-time": "1500000000", "volcano.sh/gpu-index": "3"}
        assert pod(limits(gpu_memory=500), node="n1", index="3").cards == ("3",)

    def test_recorded_koordinator_allocation_is_read_back(self) -> None:
        asked = DeviceNeed(KOORDINATOR, (CardShare(count=2, percent=50, cores=50),))
        holds = (CardHold(KOORDINATOR, "0", 80, 50), CardHold(KOORDINATOR, "1", 80, 50))
        ((key, text),) = annotations_of(asked, (holds,), "n1", {"0": 160, "1": 160}, 1.0)
        assert key == "scheduling.koordinator.sh/device-allocated"
        resources = {
            "koordinator.sh/gpu-core": "50",
            "koordinator.sh/gpu-memory": "80",
            "koordinator.sh/gpu-memory-ratio": "50",
        }
        assert msgspec.json.decode(text) == {
            "gpu": [{"minor": 0, "resources": resources}, {"minor": 1, "resources": resources}]
        }
        assert pod(koordinator(gpu=100), node="n1", allocated=text).cards == ("0", "1")

    def test_memory_alone_is_recorded_in_percent_too(self) -> None:
        hold = CardHold(KOORDINATOR, "0", 50, 0)
        asked = DeviceNeed(KOORDINATOR, (CardShare(memory=50),))
        ((_, text),) = annotations_of(asked, ((hold,),), "n1", {"0": 160}, 1.0)
        resources = {"koordinator.sh/gpu-memory": "50", "koordinator.sh/gpu-memory-ratio": "31"}
        assert msgspec.json.decode(text) == {"gpu": [{"minor": 0, "resources": resources}]}

    @pytest.mark.parametrize("text", ["", "gpu", '{"gpu": 1}', '{"gpu": [{"minor": "0"}]}'])
    def test_unreadable_allocation_holds_nothing(self, text: str) -> None:
        assert pod(koordinator(gpu=100), node="n1", allocated=text).cards == ()
