"""Kubernetes protobuf, as kubectl's imperative commands and Go's typed clients send it."""

from __future__ import annotations

import pytest

from phalanx_local.wire import CONTENT_TYPE, ProtobufError, read_protobuf
from tests.phalanx_local.client import Client

# Body of `kubectl create namespace foo`.
NAMESPACE = bytes.fromhex(
    "6b3873000a0f0a02763112094e616d657370616365 121b0a130a03666f6f12001a0022002a0032003800420012001a020a001a002200"
)


def varint(number: int) -> bytes:
    number &= (1 << 64) - 1
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    return bytes((*out, number))


def field(number: int, value: bytes | str | int) -> bytes:
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    data = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(data)) + data


def envelope(api_version: str, kind: str, raw: bytes) -> bytes:
    return b"k8s\x00" + field(1, field(1, api_version) + field(2, kind)) + field(2, raw)


def test_zero_values_are_absent_values() -> None:
    assert read_protobuf(NAMESPACE) == {
        "kind": "Namespace",
        "apiVersion": "v1",
        "metadata": {"name": "foo"},
        "spec": {},
        "status": {},
    }


def test_scalars_maps_lists_and_optional_zeros() -> None:
    quantity = field(1, "cpu") + field(2, field(1, "2"))
    container = field(1, "main") + field(2, "busybox") + field(8, field(1, quantity)) + field(16, 1)
    labels = field(11, field(1, "app") + field(2, "web"))
    created = field(8, field(1, 1_800_000_000) + field(2, 0))
    template = field(1, labels) + field(2, field(2, container) + field(4, 0))
    spec = field(1, 0) + field(3, template)
    found = read_protobuf(envelope("apps/v1", "Deployment", field(1, field(1, "d") + created) + field(2, spec)))
    assert found["metadata"] == {"name": "d", "creationTimestamp": "2027-01-15T08:00:00Z"}
    # replicas and terminationGracePeriodSeconds are pointers in Go: zero is a value, absence is not zero
    assert found["spec"]["replicas"] == 0
    pod = found["spec"]["template"]
    assert pod["metadata"]["labels"] == {"app": "web"}
    assert pod["spec"]["terminationGracePeriodSeconds"] == 0
    assert pod["spec"]["containers"] == [
        {"name": "main", "image": "busybox", "resources": {"limits": {"cpu": "2"}}, "stdin": True}
    ]


def test_inlined_messages_and_int_or_string() -> None:
    volume = field(1, "scratch") + field(2, field(2, b""))
    found = read_protobuf(envelope("v1", "Pod", field(2, field(1, volume))))
    assert found["spec"]["volumes"] == [{"name": "scratch", "emptyDir": {}}]
    for raw, value in ((field(1, 0) + field(2, 3), 3), (field(1, 1) + field(3, "20%"), "20%")):
        budget = envelope("policy/v1", "PodDisruptionBudget", field(2, field(1, raw)))
        assert read_protobuf(budget)["spec"]["minAvailable"] == value


def test_negative_numbers() -> None:
    found = read_protobuf(envelope("scheduling.k8s.io/v1", "PriorityClass", field(2, -5)))
    assert found["value"] == -5


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"k8s\x00\x0a\xff",
        b"{}",
        NAMESPACE[:40],
        envelope("example.com/v1", "Widget", b""),
        envelope("v1", "Pod", field(2, 5)),
        envelope("v1", "Pod", b"\x0b"),
        envelope("v1", "Pod", b"\xff" * 11),
    ],
)
def test_unknown_protobuf_is_refused_as_such(data: bytes) -> None:
    with pytest.raises(ProtobufError):
        read_protobuf(data)


async def test_the_server_takes_it_and_answers_json(client: Client) -> None:
    reply = await client.call("POST", "/api/v1/namespaces", NAMESPACE, content_type=CONTENT_TYPE)
    assert reply.status == 201
    assert reply.body["metadata"]["name"] == "foo"
    bad = await client.call("POST", "/api/v1/namespaces", b"k8s\x00\xff", content_type=CONTENT_TYPE)
    assert (bad.status, bad.reason) == (400, "BadRequest")
