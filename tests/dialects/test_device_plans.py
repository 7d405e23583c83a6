"""Signed card plans of bindings: trusted on their pod and node only."""

from __future__ import annotations

import pytest

from phalanx.dialects.devices.device_plans import DEVICE_PLAN, device_plan, planned_cards
from phalanx.dialects.intake import Intake
from phalanx.dialects.signatures import Signer
from phalanx.model.events import PodUpdated
from tests.dialects.objects import pod

SIGNER = Signer((("2000", b"n" * 32),))
VGPU = {"volcano.sh/vgpu-ids-new": "GPU-1,NVIDIA,300,30:GPU-2,NVIDIA,300,30:"}
KOORDINATOR = {"scheduling.koordinator.sh/device-allocated": '{"gpu": [{"minor": 3, "resources": {}}]}'}
SHARE = {"volcano.sh/gpu-index": "0,1"}


@pytest.mark.parametrize(
    ("told", "cards"), [(VGPU, ("GPU-1", "GPU-2")), (KOORDINATOR, ("3",)), (SHARE, ("0", "1"))]
)
def test_signed_plan_overrides_unsigned_annotations(told: dict[str, str], cards: tuple[str, ...]) -> None:
    signed = device_plan(told, SIGNER, "uid", "n1")
    assert planned_cards({**signed, "volcano.sh/vgpu-ids-new": "GPU-9,NVIDIA,0,0:"}, SIGNER, "uid", "n1") == cards


def test_signed_plan_is_trusted_on_no_other_pod_or_node_and_no_part_can_be_changed() -> None:
    signed = device_plan(VGPU, SIGNER, "uid", "n1")
    assert planned_cards(signed, SIGNER, "another", "n1") is None
    assert planned_cards(signed, SIGNER, "uid", "n2") is None
    for old, new in (("GPU-1", "GPU-3"), ("vgpu/", "koordinator/"), (",", ""), ("GPU-2", "GPU-2,GPU-3")):
        assert planned_cards({DEVICE_PLAN: signed[DEVICE_PLAN].replace(old, new)}, SIGNER, "uid", "n1") is None
    for text in ("", "/", "//", "vgpu//", "vgpu", "vgpu/x/GPU-1"):
        assert planned_cards({DEVICE_PLAN: text}, SIGNER, "uid", "n1") is None


def test_plan_without_a_key_or_without_cards_is_not_signed() -> None:
    assert device_plan(VGPU, Signer(), "uid", "n1") == {}
    assert device_plan({"volcano.sh/topology-decision": "{}"}, SIGNER, "uid", "n1") == {}


class TestIntake:
    def setup_method(self) -> None:
        self.distrusted: list[str] = []
        self.intake = Intake(
            ["phalanx"], signer=SIGNER, distrust=lambda key, namespace, name: self.distrusted.append(key)
        )

    def cards(self, annotations: dict[str, str]) -> tuple[str, ...]:
        wanted = {"resources": {"limits": {"volcano.sh/vgpu-number": 2}}}
        read = pod("a", annotations=annotations, node="n1", containers=[wanted])
        (found,) = [each.pod for each in self.intake.pod(read) if isinstance(each, PodUpdated)]
        return found.cards

    def test_signed_plan_applies_and_an_unsigned_annotation_is_only_a_claim(self) -> None:
        lie = {"volcano.sh/vgpu-ids-new": "GPU-8,NVIDIA,1,1:GPU-9,NVIDIA,1,1:"}
        assert self.cards({**device_plan(VGPU, SIGNER, "uid-a", "n1"), **lie}) == ("GPU-1", "GPU-2")
        assert not self.distrusted

    def test_first_plan_of_a_pod_on_its_node_is_final(self) -> None:
        assert self.cards(VGPU) == ("GPU-1", "GPU-2")
        for changed in ({"volcano.sh/vgpu-ids-new": "GPU-9,NVIDIA,1,1:"}, {"note": "none"}):
            moved = {**changed, "scheduling.k8s.io/group-name": "other"}
            assert self.cards({**changed, "volcano.sh/task-spec": "x"}) == ("GPU-1", "GPU-2")
            assert self.cards(moved) == ("GPU-1", "GPU-2")

    def test_foreign_plan_is_counted_once(self) -> None:
        copied = {**VGPU, **device_plan(VGPU, SIGNER, "uid-of-another", "n1")}
        assert self.cards(copied) == ("GPU-1", "GPU-2")
        copied["volcano.sh/task-spec"] = "worker"
        assert self.cards(copied) == ("GPU-1", "GPU-2")
        assert self.distrusted == [DEVICE_PLAN]
