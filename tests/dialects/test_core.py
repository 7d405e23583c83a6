"""Decoding: fast for well-formed objects, field by field otherwise; no pod is lost."""

from __future__ import annotations

import msgspec
import pytest

from phalanx.dialects.core import decode_namespace, decode_node, decode_pod, decode_priority_class
from phalanx.dialects.gangs.plan_marks import encode_mark
from phalanx.dialects.pods.decoder import PodDecoder, node_spec
from phalanx.dialects.signatures import Signer
from phalanx.model.gang import GangKey
from phalanx.model.pod import PlanMark, Pod, PodPhase
from phalanx.model.resources import MAX_AMOUNT
from phalanx.model.selectors import Taint
from tests.dialects.objects import container, decode, pod, pod_document


def read_pod(document: dict[str, object]) -> Pod:
    decoder, read = PodDecoder(), decode(document)
    return decoder.pod(read, decoder.template(read), "")


SIGNER = Signer((("1", b"k" * 32),))


def test_well_formed_pod_is_read_with_all_fields_of_the_scheduler() -> None:
    mark = PlanMark("c7", 4, 1_900_000_000)
    signed = encode_mark(mark, SIGNER, "uid-web", GangKey("shop", "site"))
    document = pod_document(
        "web",
        namespace="shop",
        created=1_900_000_007,
        node="n1",
        phase="Running",
        containers=[container(cpu="500m", memory="1Gi", gpu=2)],
        labels={"volcano.sh/task-spec": "ps"},
        annotations={"volcano.sh/task-index": "3", "phalanx.dev/gang-plan": signed},
        priority=7,
        preemptionPolicy="Never",
    )
    decoder, read = PodDecoder(signer=SIGNER), decode(document)
    result = decoder.pod(read, decoder.template(read), "site")
    assert (result.key, result.uid, result.scheduler) == ("shop/web", "uid-web", "phalanx")
    assert result.usage == result.pod_class.requests
    assert dict(result.usage) == {"cpu": 500, "memory": 2**30, "nvidia.com/gpu": 2}
    assert (result.node, result.phase, result.created) == ("n1", PodPhase.RUNNING, 1_900_000_007)
    assert (result.priority, result.preempts, result.role, result.index) == (7, False, "ps", 3)
    assert result.mark == mark
    assert (result.terminating, result.gated, result.problem) == (False, False, "")


def test_gates_deletion_and_nomination_are_read() -> None:
    document = pod_document(
        terminating=True, schedulingGates=[{"name": "quota"}], status={"nominatedNodeName": "n9"}
    )
    result = read_pod(document)
    assert (result.terminating, result.gated, result.nominated_node) == (True, True, "n9")


def test_unknown_fields_are_skipped() -> None:
    assert decode(pod_document(restartPolicy="Never", brandNew={"a": [1]})).faults == ()


def test_an_unknown_phase_is_unknown() -> None:
    assert read_pod(pod_document(phase="Sleeping")).phase is PodPhase.UNKNOWN


def test_null_equals_an_absent_field() -> None:
    document = pod_document(nodeSelector=None, tolerations=None, affinity=None)
    document["metadata"]["labels"] = None
    assert read_pod(document) == read_pod(pod_document())


def test_labels_and_annotations_with_other_types_are_read_as_text() -> None:
    read = decode(
        pod_document(
            labels={"pod-group/name": "a", "pod-group/min-available": 5},
            annotations={"gang.scheduling.koordinator.sh/groups": ["a/x", "b/y"], "on": True},
        )
    )
    assert read.metadata.labels["pod-group/min-available"] == "5"
    assert read.metadata.annotations == {"gang.scheduling.koordinator.sh/groups": '["a/x","b/y"]', "on": "true"}
    assert read.faults == ()


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("nodeSelector", ["a"], 'spec.nodeSelector: ["a"] is not an object'),
        ("tolerations", {"key": "a"}, 'spec.tolerations: {"key":"a"} is not a list'),
        ("priority", "high", 'spec.priority: "high" is not a whole number'),
        ("hostNetwork", "sometimes", 'spec.hostNetwork: "sometimes" is not true or false'),
        ("affinity", {"nodeAffinity": 3}, "spec.affinity.nodeAffinity: 3 is not an object"),
        ("schedulerName", 5, "spec.schedulerName: 5 is not a text"),
    ],
)
def test_field_of_the_wrong_type_is_named_and_the_remaining_fields_are_read(
    field: str, value: object, message: str
) -> None:
    document = pod_document(node="n1")
    document["spec"][field] = value
    result = read_pod(document)
    assert result.problem == message
    assert result.node == "n1"


def test_unreadable_containers_do_not_affect_other_containers() -> None:
    result = read_pod(pod_document(node="n1", containers=[container(cpu=1), "garbage"]))  # type: ignore[list-item]
    assert result.problem == 'spec.containers[1]: "garbage" is not an object'
    assert dict(result.usage) == {"cpu": 1000}
    assert not result.preemptable


def test_unreadable_amount_is_not_counted_as_usage() -> None:
    result = read_pod(pod_document(node="n1", containers=[container(cpu="1", gpu="many")]))
    assert dict(result.usage) == {"cpu": 1000}
    assert not result.preemptable
    assert result.problem.startswith(
        "spec.containers[0].resources.requests.nvidia.com/gpu: 'many' is not a quantity"
    )


def test_many_faults_are_counted_not_listed() -> None:
    broken = [container(cpu="a", memory="b", gpu="c", ephemeral="d")]
    assert read_pod(pod_document(containers=broken)).problem.endswith("; and 1 more")


@pytest.mark.parametrize(
    "raw",
    [b"", b"{", b"[]", b"3", b"{}", b'{"metadata":{}}', b'{"metadata":{"name":""}}', b'{"metadata":[1]}'],
)
def test_object_without_a_name_is_refused(raw: bytes) -> None:
    for decoder in (decode_pod, decode_node, decode_priority_class, decode_namespace):
        with pytest.raises(msgspec.DecodeError):
            decoder(raw)


def test_numbers_beyond_64_bits_do_no_harm() -> None:
    result = read_pod(pod_document(node="n1", containers=[container(cpu=10**30, memory="9" * 60)]))
    assert dict(result.usage) == {"cpu": MAX_AMOUNT, "memory": MAX_AMOUNT}


@pytest.mark.parametrize(("stated", "read"), [(10**30, 2**31 - 1), (-(10**30), -(2**31)), (7, 7)])
def test_priority_beyond_32_bits_is_ignored_for_the_last_valid_one(stated: int, read: int) -> None:
    assert read_pod(pod_document(priority=stated)).priority == read


def test_equal_specs_share_one_class_object() -> None:
    decoder = PodDecoder()
    first, second = (pod(name, containers=[container(cpu=1)], volumes=[{"name": f"token-{name}"}]) for name in "ab")
    assert decoder.template(first).pod_class is decoder.template(second).pod_class


def test_node_is_read_as_a_spec() -> None:
    raw = msgspec.json.encode(
        {
            "metadata": {"name": "n1", "uid": "u1", "labels": {"zone": "a", "arch": "amd64"}},
            "spec": {"unschedulable": True, "taints": [{"key": "gpu", "effect": "NoSchedule"}]},
            "status": {
                "capacity": {"cpu": "99"},
                "allocatable": {"cpu": "3920m", "memory": "15Gi", "pods": "110", "nvidia.com/gpu": "0"},
            },
        }
    )
    node = node_spec(decode_node(raw))
    assert (node.name, node.uid, node.unschedulable) == ("n1", "u1", True)
    assert dict(node.allocatable) == {"cpu": 3920, "memory": 15 * 2**30, "pods": 110}
    assert node.labels == (("arch", "amd64"), ("zone", "a"))
    assert node.taints == (Taint("gpu", "", "NoSchedule"),)
    assert node.problems == ()


def test_unreadable_allocatable_amount_of_a_node_counts_as_absent() -> None:
    raw = msgspec.json.encode(
        {"metadata": {"name": "n1"}, "status": {"allocatable": {"cpu": "4", "memory": "lots", "pods": "-3"}}}
    )
    node = node_spec(decode_node(raw))
    assert dict(node.allocatable) == {"cpu": 4000}
    assert [problem.split(":")[0] for problem in node.problems] == [
        "status.allocatable.memory",
        "status.allocatable.pods",
    ]


def test_images_of_a_node_are_known_by_all_their_names_with_a_tag() -> None:
    images = [
        {"names": ["registry:5000/cuda", "registry:5000/cuda@sha256:ab"], "sizeBytes": 700},
        {"names": ["busybox:1.36"], "sizeBytes": 5},
        {"names": [], "sizeBytes": 9},
    ]
    status = {"images": images, "declaredFeatures": ["B", "A"]}
    node = node_spec(decode_node(msgspec.json.encode({"metadata": {"name": "n1"}, "status": status})))
    assert dict(node.images) == {
        "registry:5000/cuda:latest": 700,
        "registry:5000/cuda@sha256:ab": 700,
        "busybox:1.36": 5,
    }
    assert node.features == ("A", "B")


def test_priority_classes_and_namespaces_are_read() -> None:
    priority = decode_priority_class(b'{"metadata":{"name":"high"},"value":1000,"globalDefault":true}')
    assert (priority.metadata.name, priority.value, priority.global_default) == ("high", 1000, True)
    assert decode_priority_class(b'{"metadata":{"name":"odd"},"value":"much"}').value == 0
    assert decode_namespace(b'{"metadata":{"name":"team"}}').metadata.name == "team"
