"""Events that confirm our bindings: the intake has the result of a full decoding without it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from phalanx.dialects.gangs.plan_marks import PLAN_ANNOTATION, encode_mark
from phalanx.dialects.intake import Intake
from phalanx.dialects.pods.confirmed_bindings import ConfirmedBindings
from phalanx.dialects.pods.decoder import PodDecoder
from phalanx.dialects.pods.pod_reader import PodReader
from phalanx.dialects.signatures import Signer
from phalanx.model.events import ClusterEvent, PodUpdated
from phalanx.model.gang import GangKey
from phalanx.model.pod import PlanMark
from tests.dialects.objects import container, pod_document

SIGNER = Signer((("1", b"k" * 32),))
MARK = encode_mark(PlanMark("plan", 2, 1_800_000_000), SIGNER, "uid-a", GangKey("default", "g"))
GROUP = {"scheduling.x-k8s.io/pod-group": "g"}
SCHEDULED = {"type": "PodScheduled", "status": "True", "lastTransitionTime": "2030-01-01T00:00:00Z"}


def document(**details: Any) -> dict[str, Any]:
    made = {
        "labels": GROUP,
        "containers": [container(cpu="1")],
        "schedulerName": "phalanx",
        "owner": "job",
        "nodeSelector": {"pool": "a"},
        **details,
    }
    return pod_document("a", **made)


def bound(mark: str = MARK, annotations: dict[str, str] | None = None, **details: Any) -> dict[str, Any]:
    made = {"annotations": {PLAN_ANNOTATION: mark, **(annotations or {})}, "node": "n1", **details}
    return document(**{"status": {"conditions": [SCHEDULED]}, **made})


def events(*documents: dict[str, Any]) -> list[list[ClusterEvent]]:
    intake, reader = Intake(["phalanx"], signer=SIGNER), PodReader()
    return [intake.pod(reader.pod(msgspec.json.encode(each))) for each in documents]


@pytest.fixture
def decodings(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Uids of the pods that are decoded in full."""
    uids: list[str] = []
    decode = PodDecoder.pod

    def counted(self: PodDecoder, pod: Any, *details: Any) -> Any:
        uids.append(pod.metadata.uid)
        return decode(self, pod, *details)

    monkeypatch.setattr(PodDecoder, "pod", counted)
    return uids


def test_confirmed_binding_is_not_decoded_again(decodings: list[str]) -> None:
    *_, (event,) = events(document(), bound())
    assert isinstance(event, PodUpdated)
    assert (event.pod.node, event.pod.mark) == ("n1", PlanMark("plan", 2, 1_800_000_000))
    assert len(decodings) == 1


CHANGED = {
    "nothing else": bound(),
    "label": bound(labels={**GROUP, "a": "b"}),
    "gang": bound(labels={"scheduling.x-k8s.io/pod-group": "other"}),
    "annotation": bound(annotations={"a": "b"}),
    "foreign GPUs": bound(annotations={"scheduling.koordinator.sh/device-allocated": "{}"}),
    "owner": bound(owner="other"),
    "deletion": bound(terminating=True),
    "phase": bound(phase="Running", status={"startTime": "2030-01-01T00:00:05Z", "conditions": [SCHEDULED]}),
    "end": bound(phase="Succeeded"),
    "condition": bound(status={"conditions": [SCHEDULED, {"type": "DisruptionTarget", "status": "True"}]}),
    "no condition": bound(status={}),
    "nominated node": bound(status={"nominatedNodeName": "n2"}),
    "used resources": bound(status={"resources": {"requests": {"cpu": "3"}}}),
    "requests": bound(containers=[container(cpu="2")]),
    "tolerations": bound(tolerations=[{"key": "a", "operator": "Exists"}]),
    "priority": bound(priority=7),
    "scheduler": bound(schedulerName="other"),
    "forged mark": bound(mark=MARK[:-4] + "AAAA"),
    "no mark": document(node="n1"),
}


@pytest.mark.parametrize("name", CHANGED)
def test_binding_has_the_result_of_a_full_decoding(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    history = (document(), CHANGED[name], bound(phase="Running"))
    short = events(*history)
    monkeypatch.setattr(ConfirmedBindings, "confirmed", lambda *_: None)
    assert short == events(*history)


@pytest.mark.parametrize("name", CHANGED.keys() - {"nothing else", "no condition", "nominated node"})
def test_other_changes_are_decoded_in_full(name: str, decodings: list[str]) -> None:
    events(document(), CHANGED[name])
    assert len(decodings) == 2


def test_binding_of_a_gated_pod_is_decoded_in_full(decodings: list[str]) -> None:
    gated = document(schedulingGates=[{"name": "wait"}])
    assert events(gated, bound())[-1] == events(document(), bound())[-1]
    assert len(decodings) == 3


def test_pods_of_one_workload_share_a_spec_with_and_without_a_node() -> None:
    reader = PodReader()
    waiting, placed = (reader.pod(msgspec.json.encode(each)) for each in (document(), bound()))
    assert waiting.spec_template is placed.spec_template
    other = reader.pod(msgspec.json.encode(bound(priority=7)))
    assert other.spec_template is not placed.spec_template
