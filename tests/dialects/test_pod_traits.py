"""Traits of pods that are written alike: they are decoded once, with the result of decoding each pod alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from phalanx.dialects.core import PodObject, decode_pod
from phalanx.dialects.gangs.plan_marks import PLAN_ANNOTATION, encode_mark
from phalanx.dialects.intake import Intake
from phalanx.dialects.pods.binding_marks import encode_binding
from phalanx.dialects.pods.decoder import PodDecoder
from phalanx.dialects.pods.pod_reader import PodReader
from phalanx.dialects.signatures import Signer
from phalanx.model.advance_reservation import RESERVATION_ANNOTATION
from phalanx.model.events import ClusterEvent, PodUpdated
from phalanx.model.gang import GangKey
from phalanx.model.pod import PlanMark
from tests.dialects.objects import container, pod_document

SIGNER = Signer((("1", b"k" * 32),))
GROUP = {"scheduling.x-k8s.io/pod-group": "g"}
SCHEDULED = {"type": "PodScheduled", "status": "True", "lastTransitionTime": "2030-01-01T00:00:00Z"}
Document = dict[str, Any]


def document(name: str = "a", **details: Any) -> Document:
    made = {
        "labels": GROUP,
        "containers": [container(cpu="1")],
        "schedulerName": "phalanx",
        "owner": "job",
        "nodeSelector": {"pool": "a"},
        **details,
    }
    return pod_document(name, **made)


def mark(name: str = "a") -> str:
    return encode_mark(PlanMark("plan", 2, 1_800_000_000), SIGNER, f"uid-{name}", GangKey("default", "g"))


def bound(name: str = "a", annotations: dict[str, str] | None = None, **details: Any) -> Document:
    made = {"annotations": {PLAN_ANNOTATION: mark(name), **(annotations or {})}, "node": "n1", **details}
    return document(name, **{"status": {"conditions": [SCHEDULED]}, **made})


def single(name: str = "a", **details: Any) -> Document:
    return document(name, **{"labels": {}, "owner": None, **details})


def events(read: Callable[[bytes], PodObject], *documents: Document) -> list[list[ClusterEvent]]:
    intake = Intake(["phalanx"], signer=SIGNER)
    return [intake.pod(read(msgspec.json.encode(each))) for each in documents]


@pytest.fixture
def decodings(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the pods whose traits are decoded."""
    names: list[str] = []
    decode = PodDecoder.common

    def counted(self: PodDecoder, pod: PodObject, *details: Any) -> Any:
        names.append(pod.metadata.name)
        return decode(self, pod, *details)

    monkeypatch.setattr(PodDecoder, "common", counted)
    return names


def test_members_of_a_gang_and_their_bindings_are_decoded_once(decodings: list[str]) -> None:
    history = (document("a"), document("b"), bound("a"), bound("b"), bound("a", phase="Running"))
    *_, [update] = events(PodReader().pod, *history)[:4]
    assert isinstance(update, PodUpdated)
    assert (update.pod.name, update.pod.node, update.pod.mark) == ("b", "n1", PlanMark("plan", 2, 1_800_000_000))
    assert decodings == ["a"]


def test_binding_of_a_single_pod_is_not_decoded_again(decodings: list[str]) -> None:
    signed = encode_binding(SIGNER, "uid-a", "n1", 1_800_000_000)
    *_, [update] = events(PodReader().pod, single(), single(node="n1", annotations=signed))
    assert isinstance(update, PodUpdated)
    assert update.pod.marked_bound == 1_800_000_000
    assert decodings == ["a"]


CHANGED = {
    "nothing else": bound(),
    "label": bound(labels={**GROUP, "a": "b"}),
    "gang": bound(labels={"scheduling.x-k8s.io/pod-group": "other"}),
    "no gang": single(node="n1"),
    "no gang, own queue": single(annotations={"scheduling.volcano.sh/queue-name": "q"}),
    "annotation": bound(annotations={"a": "b"}),
    "eviction": bound(annotations={"volcano.sh/preemptable": "false", "volcano.sh/cooldown-time": "soon"}),
    "foreign GPUs": bound(annotations={"scheduling.koordinator.sh/device-allocated": "{}"}),
    "mirror": bound(annotations={"kubernetes.io/config.mirror": "x"}),
    "owner": bound(owner="other"),
    "deletion": bound(terminating=True),
    "phase": bound(phase="Running", status={"startTime": "2030-01-01T00:00:05Z", "conditions": [SCHEDULED]}),
    "end": bound(phase="Succeeded"),
    "condition": bound(status={"conditions": [SCHEDULED, {"type": "DisruptionTarget", "status": "True"}]}),
    "no condition": bound(status={}),
    "nominated node": document(status={"nominatedNodeName": "n2"}),
    "used resources": bound(status={"resources": {"requests": {"cpu": "3"}}}),
    "requests": bound(containers=[container(cpu="2")]),
    "tolerations": bound(tolerations=[{"key": "a", "operator": "Exists"}]),
    "priority": bound(priority=7),
    "grace": bound(terminationGracePeriodSeconds=7),
    "gates": document(schedulingGates=[{"name": "wait"}]),
    "scheduler": bound(schedulerName="other"),
    "forged mark": bound(annotations={PLAN_ANNOTATION: mark()[:-4] + "AAAA"}),
    "mark of another pod": bound(annotations={PLAN_ANNOTATION: mark("b")}),
    "no mark": document(node="n1"),
}


@pytest.mark.parametrize("name", CHANGED)
@pytest.mark.parametrize("first", [document(), single(), bound()], ids=["member", "single pod", "bound member"])
def test_changed_pod_has_the_result_of_decoding_it_alone(name: str, first: Document) -> None:
    history = (document("b"), single("c"), first, CHANGED[name], bound("b"), bound(phase="Running"))
    assert events(PodReader().pod, *history) == events(decode_pod, *history)


def test_pods_without_a_group_name_stay_gangs_of_their_own() -> None:
    minimum = {"scheduling.volcano.sh/group-min-member": "2"}
    history = [single(name, annotations=minimum) for name in ("a", "b")]
    assert events(PodReader().pod, *history) == events(decode_pod, *history)


def test_pods_of_one_workload_share_a_spec_with_and_without_a_node() -> None:
    reader = PodReader()
    waiting, placed, other = (
        reader.pod(msgspec.json.encode(each)) for each in (document(), bound(), bound(priority=7))
    )
    assert waiting.shared is placed.shared
    assert other.shared is not placed.shared


def test_memory_of_traits_is_bounded(monkeypatch: pytest.MonkeyPatch, decodings: list[str]) -> None:
    monkeypatch.setattr("phalanx.dialects.pods.traits._MOST", 2)
    labels = [{**GROUP, "number": str(number)} for number in (1, 2, 3, 1)]
    events(PodReader().pod, *(document(f"p{number}", labels=each) for number, each in enumerate(labels)))
    assert len(decodings) == 4


CONCERNS: dict[str, Document] = {
    "run time": {"annotations": {"phalanx.dev/max-run-time": "2h"}},
    "reservation": {"annotations": {RESERVATION_ANNOTATION: "r"}},
}


@pytest.mark.parametrize("name", CONCERNS)
def test_enricher_forgets_a_pod_that_it_concerned_before(name: str) -> None:
    read = PodReader().pod
    concerned, plain = single(**CONCERNS[name]), single()
    [first], [last] = events(read, concerned, plain)
    assert [last] == events(read, plain)[0]
    assert first != last
