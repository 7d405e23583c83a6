"""Shared decoding of a list of pods: equal to decoding each pod on its own."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from phalanx.dialects.core import PodObject, decode_pod
from phalanx.dialects.pods.decoder import PodDecoder
from phalanx.dialects.pods.pod_reader import PodReader
from tests.dialects.objects import container, pod_document

Document = dict[str, Any]


def text(document: Document) -> bytes:
    """Encode as API servers do: without spaces, and fields in the order of the document."""
    return json.dumps(document, separators=(",", ":")).encode()


def known(pod: PodObject) -> Document:
    """Return all decoded fields of a pod, without marks of shared decoding."""
    found: Document = msgspec.to_builtins(pod)
    return {key: value for key, value in found.items() if key not in ("shared", "template")}


def token_volume(suffix: str, **other: object) -> Document:
    return {"name": f"kube-api-access-{suffix}", **(other or {"projected": {"sources": []}})}


def with_token(suffix: str, name: str = "p", node: str = "n1") -> Document:
    mount = {"name": f"kube-api-access-{suffix}", "readOnly": True, "mountPath": "/var/run/secrets"}
    containers = [{**container(cpu="1"), "volumeMounts": [mount]}]
    return pod_document(name, node=node, containers=containers, volumes=[token_volume(suffix)])


def test_pods_of_one_workload_share_their_decoded_specs() -> None:
    reader = PodReader()
    one, other = (
        reader.pod(text(with_token(suffix, name, node)))
        for suffix, name, node in (("abcde", "p-0", "n1"), ("vwxyz", "p-1", "n2"))
    )
    assert one.spec.containers is other.spec.containers
    assert one.shared is other.shared
    assert (one.spec.node_name, other.spec.node_name) == ("n1", "n2")
    assert (one.metadata.name, other.metadata.name) == ("p-0", "p-1")


def test_pod_that_gets_its_node_shares_no_outdated_field() -> None:
    reader = PodReader()
    waiting, bound = (reader.pod(text(pod_document("p", node=node))) for node in ("", "n1"))
    assert (waiting.spec.node_name, bound.spec.node_name) == ("", "n1")


def _selects_a_node_by_name(value: str) -> Document:
    return pod_document(node="n1", nodeSelector={"nodeName": value})


def _claims_what_is_named_like_a_token(suffix: str) -> Document:
    claim = {"persistentVolumeClaim": {"claimName": f"kube-api-access-{suffix}"}}
    document = with_token(suffix)
    document["spec"]["volumes"].append({"name": "data", **claim})
    return document


def _has_a_container_named_like_a_token(suffix: str) -> Document:
    document = with_token(suffix)
    document["spec"]["containers"][0]["name"] = f"kube-api-access-{suffix}"
    return document


def _has_an_ephemeral_volume_named_like_a_token(suffix: str) -> Document:
    return pod_document(volumes=[token_volume(suffix, ephemeral={"volumeClaimTemplate": {}})], node="n1")


def _selects_a_node_by_name_and_has_none(value: str) -> Document:
    return pod_document(nodeSelector={"nodeName": value})


@pytest.mark.parametrize(
    "made",
    [
        _selects_a_node_by_name_and_has_none,
        _selects_a_node_by_name,
        _claims_what_is_named_like_a_token,
        _has_a_container_named_like_a_token,
        _has_an_ephemeral_volume_named_like_a_token,
    ],
)
def test_pod_written_to_look_like_another_is_decoded_correctly(made: Callable[[str], Document]) -> None:
    reader = PodReader()
    for word in ("", "aaaaa", "bbbbb", "aaaaa", ""):
        raw = text(made(word))
        assert known(reader.pod(raw)) == known(decode_pod(raw))


@pytest.mark.parametrize(
    "raw",
    [
        b'{"metadata":{"name":"p"}}',
        b'{"metadata":{"name":"p"},"spec":null}',
        b'{"metadata":{"name":"p"},"spec":[]}',
        b'{"metadata":{"name":"p"},"spec":{"nodeName":7}}',
        b'{"metadata":{"name":"p"},"spec":{"nodeName":"a\\"b"}}',
        b'{"metadata":{"name":"p"},"spec":{"nodeName":"\\u00e4"}}',
        b'{"metadata":{"name":"p"},"spec":{ "nodeName" : "n1" }}',
        b'{"metadata":{"name":"p"},"spec":{"nodeName":"n1","nodeName":"n2"}}',
        b'{"metadata":{"name":"p"},"spec":{"priority":"high","nodeName":"n1"}}',
        b'{"metadata":{"name":"p"},"spec":{"volumes":[{"name":"kube-api-access-"}]}}',
        b'{"metadata":{"name":"p"},"spec":{"affinity":{"unknownTerm":1}},"status":{"phase":"Running"}}',
        b'{"metadata":{"name":"p"},"status":{"phase":7}}',
        b'{"metadata":{"name":"p"},"spec":{"x":' + b"[" * 3000 + b"]" * 3000 + b"}}",
    ],
)
def test_odd_pod_is_decoded_as_on_its_own(raw: bytes) -> None:
    reader = PodReader()
    for _ in range(2):
        assert known(reader.pod(raw)) == known(decode_pod(raw))


@pytest.mark.parametrize("raw", [b"", b"[]", b'{"metadata":{}}', b'{"metadata":{"name":"p"}', b'{"spec":{}}'])
def test_invalid_pod_raises_the_same_error(raw: bytes) -> None:
    with pytest.raises(msgspec.DecodeError) as alone:
        decode_pod(raw)
    with pytest.raises(msgspec.DecodeError) as together:
        PodReader().pod(raw)
    assert str(together.value) == str(alone.value)


def test_cache_is_cleared_when_it_is_full(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("phalanx.dialects.pods.pod_reader._CACHE_SIZE", 1000)
    reader = PodReader()
    for number in range(50):
        raw = text(pod_document(node="n1", nodeSelector={"zone": f"z{number}"}))
        assert known(reader.pod(raw)) == known(decode_pod(raw))
    assert len(reader) < 50


_words = st.sampled_from(["", "n1", "n2", "aaaaa", "bbbbb", 'a"b', "a\\", "nodeName", "kube-api-access-aaaaa", "ä"])
_mounts = [{"name": "kube-api-access-aaaaa", "readOnly": True, "mountPath": "/x"}]
_volumes = st.lists(
    st.tuples(_words, st.sampled_from(["projected", "ephemeral", "configMap"])).map(
        lambda each: {"name": f"kube-api-access-{each[0]}", each[1]: {}}
    ),
    max_size=2,
)
_specs = st.fixed_dictionaries(
    {},
    optional={
        "volumes": _volumes,
        "containers": st.lists(
            st.fixed_dictionaries(
                {"name": _words},
                optional={
                    "resources": st.sampled_from([{"requests": {"cpu": "1"}}, {"limits": {"cpu": "2"}}]),
                    "env": st.lists(st.fixed_dictionaries({"name": _words, "value": _words}), max_size=1),
                    "volumeMounts": st.just(_mounts),
                },
            ),
            max_size=2,
        ),
        "nodeSelector": st.dictionaries(_words, _words, max_size=2),
        "nodeName": _words,
        "priority": st.sampled_from([0, 5, "high"]),
        "affinity": st.sampled_from([{}, {"nodeAffinity": {}}, {"unknown": {}}]),
    },
)


@given(st.lists(st.tuples(_specs, st.booleans()), min_size=1, max_size=8))
def test_pods_in_any_order_are_each_decoded_as_on_their_own(specs: list[tuple[Document, bool]]) -> None:
    reader, decoder = PodReader(), PodDecoder()
    for spec, annotated in specs:
        metadata: Document = {"name": "p", "uid": "u"}
        if annotated:
            metadata["annotations"] = {"volcano.sh/preemptable": "true"}
        raw = text({"metadata": metadata, "spec": copy.deepcopy(spec), "status": {}})
        together, alone = reader.pod(raw), decode_pod(raw)
        assert known(together) == known(alone)
        assert decoder.template(together) == PodDecoder().template(alone)
        # The template is checked, too: results derived from it are cached under it.
        assert together.template == alone.template
