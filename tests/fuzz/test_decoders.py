"""For any bytes, a decoder returns a value or raises the one error that it declares, within a time limit.

Every past failure is a file under `corpus/DECODER/`, and is tried in every run.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from random import Random
from types import FrameType
from typing import Any

import msgspec
import pytest
import yaml
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from phalanx.dialects.core import (
    decode_namespace,
    decode_node,
    decode_pod,
    decode_priority_class,
    decode_resource_quota,
)
from phalanx.dialects.gangs.topology_annotations import parse_layers, parse_tier
from phalanx.dialects.quotas.budgets import parse_budget
from phalanx.dialects.quotas.eviction_limits import parse_eviction_rate, parse_min_run_time
from phalanx.dialects.reader import decode_group, decode_object
from phalanx.dialects.times import parse_time
from phalanx.kube.auth.kubeconfig import _read as read_kubeconfig_file
from phalanx.kube.errors import ConfigError, ConnectionLost, api_error
from phalanx.kube.wire import read_event, read_head, read_page, read_status, version_number
from phalanx.model.text.decoding import decode_json, decode_loosely, parse_float, parse_whole
from phalanx.model.text.duration import parse_duration
from phalanx.model.text.patterns import PatternError, compile_pattern
from phalanx.model.text.quantity import QuantityError, parse_quantity
from phalanx.model.text.yaml_text import decode_yaml
from phalanx.scheduling.framework.errors import PolicyError
from phalanx.scheduling.policy.loader import load_policy
from phalanx_local.errors import StatusError
from phalanx_local.nodeagent.node_file import NodeFileError, parse_node_file
from phalanx_local.nodeagent.pod_runtime.script import ScriptDefaults, ScriptError, read_script
from phalanx_local.registry.patching import read_json, read_yaml
from phalanx_local.wire.protobuf import ProtobufError, read_protobuf
from tests.extent import examples

from .hostile import NAMES, TEXTS, mutated, node, pod

CORPUS = Path(__file__).parent / "corpus"


def text(decode: Callable[[str], Any]) -> Callable[[bytes], Any]:
    return lambda raw: decode(raw.decode("utf-8", "replace"))


def script(raw: str) -> None:
    for name in ("exit-code", "start-seconds", "run-seconds", "terminate-seconds"):
        read_script({f"phalanx.dev/{name}": raw}, "Never", ScriptDefaults())


def kubeconfig(raw: bytes) -> Any:
    with tempfile.NamedTemporaryFile() as file:
        file.write(raw)
        file.flush()
        return read_kubeconfig_file(file.name)


DECODERS: dict[str, tuple[Callable[[bytes], Any], tuple[type[Exception], ...]]] = {
    "json": (decode_json, (msgspec.DecodeError,)),
    "json-loosely": (decode_loosely, (msgspec.DecodeError,)),
    "yaml": (decode_yaml, (yaml.YAMLError,)),
    "whole": (text(parse_whole), ()),
    "float": (text(parse_float), ()),
    "quantity": (text(parse_quantity), (QuantityError,)),
    "duration": (text(parse_duration), (ValueError,)),
    "time": (text(parse_time), ()),
    "pattern": (text(compile_pattern), (PatternError,)),
    "pod": (decode_pod, (msgspec.DecodeError,)),
    "node": (decode_node, (msgspec.DecodeError,)),
    "namespace": (decode_namespace, (msgspec.DecodeError,)),
    "priority-class": (decode_priority_class, (msgspec.DecodeError,)),
    "resource-quota": (decode_resource_quota, (msgspec.DecodeError,)),
    "object": (decode_object, (msgspec.DecodeError,)),
    "group": (decode_group, (msgspec.DecodeError,)),
    "budget": (text(parse_budget), ()),
    "eviction-rate": (text(parse_eviction_rate), (ValueError,)),
    "min-run-time": (text(parse_min_run_time), (ValueError,)),
    "layers": (text(parse_layers), (ValueError,)),
    "tier": (text(parse_tier), (ValueError,)),
    "list": (read_page, (ConnectionLost,)),
    "event": (read_event, (ConnectionLost,)),
    "head": (read_head, ()),
    "status": (read_status, ()),
    "version": (text(version_number), ()),
    "error": (lambda raw: api_error(500, raw, raw.decode("utf-8", "replace")), ()),
    "kubeconfig": (kubeconfig, (ConfigError,)),
    "policy": (text(load_policy), (PolicyError,)),
    "node-file": (text(lambda raw: parse_node_file(raw, "nodes")), (NodeFileError,)),
    "script": (text(script), (ScriptError,)),
    "body": (lambda raw: read_json(raw, "body"), (StatusError,)),
    "apply-patch": (read_yaml, (StatusError,)),
    "protobuf": (read_protobuf, (ProtobufError,)),
}
# Lines of ours that one input may take: bounded work, by counting.
MOST_LINES = 400_000


def tried(name: str, raw: bytes) -> None:
    decode, declared = DECODERS[name]
    lines = 0

    def count(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal lines
        lines += 1
        return count

    before = sys.gettrace()
    if before is None:
        sys.settrace(count)
    try:
        decode(raw)
    except declared:
        pass
    finally:
        sys.settrace(before)
    assert lines < MOST_LINES + 60 * len(raw)


FILES = sorted(path for path in CORPUS.glob("*/*") if path.is_file())


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_past_failures_of_decoders_pass(path: Path) -> None:
    tried(path.parent.name, path.read_bytes())


@pytest.mark.parametrize("name", DECODERS)
def test_each_known_text_in_each_decoder(name: str) -> None:
    for known in TEXTS:
        tried(name, known.encode("utf-8", "replace"))
        tried(name, msgspec.json.encode(known))


@pytest.mark.thorough
@settings(max_examples=examples(400), deadline=None, suppress_health_check=list(HealthCheck))
@given(st.sampled_from(sorted(DECODERS)), st.binary(max_size=200))
@example("json", b"\xff")
def test_any_bytes(name: str, raw: bytes) -> None:
    tried(name, raw)


@pytest.mark.thorough
@settings(max_examples=examples(400), deadline=None, suppress_health_check=list(HealthCheck))
@given(st.sampled_from(sorted(DECODERS)), st.integers(0, 2**48))
def test_objects_with_parts_replaced_and_bytes_flipped(name: str, seed: int) -> None:
    rng = Random(seed)
    raw = bytearray(msgspec.json.encode(mutated(rng, rng.choice((pod, node))(rng))))
    for _ in range(rng.randrange(4)):
        raw[rng.randrange(len(raw))] = rng.randrange(256)
    begin = rng.randrange(len(raw)) if rng.random() < 0.2 else 0
    tried(name, bytes(raw[begin:]))


@pytest.mark.thorough
@settings(max_examples=examples(200), deadline=None, suppress_health_check=list(HealthCheck))
@given(st.sampled_from(("yaml", "policy", "kubeconfig", "node-file", "apply-patch")), st.integers(0, 2**48))
def test_yaml_made_of_its_own_words(name: str, seed: int) -> None:
    rng = Random(seed)
    words = (
        "a: ",
        "- ",
        "&a ",
        "*a ",
        "<<: ",
        "{",
        "}",
        "[",
        "]",
        "\n",
        "\n  ",
        "? ",
        ": ",
        "!!int ",
        "|\n ",
        "---\n",
        "'",
    )
    more: tuple[str, ...] = (
        *words,
        "actions: ",
        "tiers:\n- ",
        "plugins: ",
        "name: ",
        "clusters: ",
        "users: ",
        "nodes: ",
        "count: ",
        *NAMES,
    )
    tried(
        name,
        "".join(rng.choice((*more, *more, *TEXTS)) for _ in range(rng.randrange(60))).encode("utf-8", "replace"),
    )
