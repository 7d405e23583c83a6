"""File with the nodes of the agent: compact entries, or core/v1 Node objects, in YAML or JSON.

- name: gpu-{i}
  count: 4
  allocatable: {cpu: 32, memory: 128Gi, nvidia.com/gpu: 4}
  labels: {zone: a}
  taints: [{key: gpu, value: "yes", effect: NoSchedule}]
  devices: [{driver: gpu.example.com, count: 4}]
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
import yaml

from phalanx.model.resources import parse_amount
from phalanx.model.text.decoding import parse_whole, quoted
from phalanx.model.text.quantity import QuantityError
from phalanx.model.text.yaml_text import decode_yaml_all
from phalanx_local.nodeagent.resource_slices import DeviceEntryError, DeviceOffer, read_devices

# A quantity has the form of the file, so that the Node object shows `128Gi` and not a number.
Quantities = dict[str, str]

_DEFAULT_PODS = "110"
_MAX_NODES = 100_000
_MAX_NAME = 253
#: Maximum size of a nodes file in bytes: room for 100,000 Node objects.
MAX_FILE_SIZE = 256 * 1024 * 1024
_FIELDS = (
    "name",
    "count",
    "allocatable",
    "capacity",
    "labels",
    "annotations",
    "taints",
    "unschedulable",
    "devices",
)
_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_NAME = re.compile(r"(?=.{1,253}\Z)[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_INDEX = re.compile(r"\{i(?::0?(?P<width>[0-9]+))?\}")


class NodeFileError(ValueError):
    """Error for a nodes file that cannot be read as a whole."""


class NodeFileEntry(msgspec.Struct, frozen=True):
    """Node that an entry of the nodes file describes."""

    name: str
    capacity: Quantities
    allocatable: Quantities
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    taints: list[dict[str, str]] = []
    unschedulable: bool = False
    devices: tuple[DeviceOffer, ...] = ()


class NodeFile(msgspec.Struct, frozen=True):
    """Nodes of a nodes file by name, and a line for each entry that was skipped because of a mistake."""

    nodes: dict[str, NodeFileEntry]
    problems: tuple[str, ...] = ()


class _EntryError(ValueError):
    """Mistake in one entry of the nodes file; the text starts with the field."""


def parse_node_file(text: str, source: str) -> NodeFile:
    """Parse the nodes of all YAML documents. Report and skip bad entries; raise NodeFileError for unreadable
    files."""
    try:
        documents = [document for document in decode_yaml_all(text) if document is not None]
    except yaml.YAMLError as error:
        raise NodeFileError(f"nodes file {source}: not YAML or JSON: {error}") from error
    nodes: dict[str, NodeFileEntry] = {}
    problems: list[str] = []
    for number, entry in enumerate(_entries(documents, source), start=1):
        try:
            for spec in _specs(entry):
                if spec.name in nodes:
                    raise _EntryError(f"name: two nodes have the name {quoted(spec.name)}")
                if len(nodes) >= _MAX_NODES:
                    raise NodeFileError(f"nodes file {source}: more than {_MAX_NODES} nodes")
                nodes[spec.name] = spec
        except _EntryError as mistake:
            problems.append(f"nodes file {source}: entry {number} ({_label(entry)}): {mistake}")
    return NodeFile(nodes, tuple(problems))


def _entries(documents: list[Any], source: str) -> Iterator[Any]:
    for document in documents:
        match document:
            case list():
                yield from document
            case {"kind": "List" | "NodeList", "items": list(items)} | {"nodes": list(items)}:
                yield from items
            case dict():
                yield document
            case _:
                raise NodeFileError(f"nodes file {source}: expected a list of nodes, found {quoted(document)}")


def _label(entry: Any) -> str:
    match entry:
        case {"metadata": {"name": name}} | {"name": name}:
            return quoted(str(name)) if len(str(name)) > _MAX_NAME else str(name)
    return "without a name"


def _specs(entry: Any) -> Iterator[NodeFileEntry]:
    if not isinstance(entry, dict):
        raise _EntryError(f"expected a node, found {quoted(entry)}")
    if "kind" in entry or "metadata" in entry:
        yield _from_object(entry)
        return
    for field in entry:
        if field not in _FIELDS:
            close = difflib.get_close_matches(str(field), _FIELDS, 1)
            raise _EntryError(f"{field}: unknown field" + (f"; did you mean {close[0]}?" if close else ""))
    pattern, count = entry.get("name"), entry.get("count")
    if not isinstance(pattern, str):
        raise _EntryError(f"name: expected a string, found {quoted(pattern)}")
    if count is not None and (
        isinstance(count, bool) or not isinstance(count, int) or not 0 <= count <= _MAX_NODES
    ):
        raise _EntryError(f"count: expected a number from 0 to {_MAX_NODES}, found {quoted(count)}")
    if count is not None and not _INDEX.search(pattern) and count != 1:
        raise _EntryError(f"name: {count} nodes need {{i}} in their name, such as {pattern}-{{i}}")
    if count == 0:
        return
    first = _spec(_indexed(pattern, 0), entry)
    yield first
    for index in range(1, count or 1):
        # The nodes share the contents of the entry: their size must not multiply with the count.
        yield msgspec.structs.replace(first, name=_checked_name(_indexed(pattern, index)))


def _indexed(pattern: str, index: int) -> str:
    """Return a node name with the index in place of `{i}`. Raise _EntryError for a pattern that is too long or has
    too many digits."""
    if len(pattern) > _MAX_NAME:
        raise _EntryError(f"name: {quoted(pattern)} has more than {_MAX_NAME} characters")

    def digits(placeholder: re.Match[str]) -> str:
        width = parse_whole(placeholder["width"] or "1", 0, _MAX_NAME)
        if width is None:
            raise _EntryError(f"name: {quoted(pattern)} asks for more than {_MAX_NAME} digits")
        return f"{index:0{width or 1}d}"

    return _INDEX.sub(digits, pattern)


def _from_object(entry: dict[str, Any]) -> NodeFileEntry:
    if entry.get("kind") != "Node":
        raise _EntryError(f"kind: expected Node, found {quoted(entry.get('kind'))}")
    metadata, spec, status = (_mapping(entry, part) for part in ("metadata", "spec", "status"))
    name = metadata.get("name")
    if not isinstance(name, str):
        raise _EntryError(f"metadata.name: expected a string, found {quoted(name)}")
    fields = {key: metadata.get(key) for key in ("labels", "annotations")}
    fields |= {key: spec.get(key) for key in ("taints", "unschedulable")}
    fields |= {key: status.get(key) for key in ("allocatable", "capacity")}
    return _spec(name, fields)


def _checked_name(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise _EntryError(f"name: {quoted(name)} is not a DNS name (small letters, digits, '-' and '.')")
    return name


def _spec(name: str, entry: Mapping[str, Any]) -> NodeFileEntry:
    allocatable, capacity = _quantities(entry, "allocatable"), _quantities(entry, "capacity")
    if not allocatable and not capacity:
        raise _EntryError("allocatable: missing; expected amounts such as {cpu: 8, memory: 32Gi}")
    # A resource in only one of the lists counts for both. Without pods, the default of the kubelet applies.
    capacity = {"pods": _DEFAULT_PODS} | allocatable | capacity
    allocatable = capacity | allocatable
    unschedulable = entry.get("unschedulable") or False
    if not isinstance(unschedulable, bool):
        raise _EntryError(f"unschedulable: expected true or false, found {quoted(unschedulable)}")
    try:
        devices = read_devices(entry.get("devices"))
    except DeviceEntryError as error:
        raise _EntryError(str(error)) from None
    return NodeFileEntry(
        name=_checked_name(name),
        capacity=capacity,
        allocatable=allocatable,
        labels=_texts(entry, "labels"),
        annotations=_texts(entry, "annotations"),
        taints=_taints(entry),
        unschedulable=unschedulable,
        devices=devices,
    )


def _quantities(entry: Mapping[str, Any], field: str) -> Quantities:
    read: Quantities = {}
    for resource, value in _mapping(entry, field).items():
        try:
            if parse_amount(str(resource), value) < 0:
                raise _EntryError(f"{field}.{resource}: {quoted(value)} is negative")
        except QuantityError as error:
            raise _EntryError(f"{field}.{resource}: {error}") from error
        read[str(resource)] = str(value)
    return read


def _texts(entry: Mapping[str, Any], field: str) -> dict[str, str]:
    read = {}
    for key, value in _mapping(entry, field).items():
        if not isinstance(value, str):
            raise _EntryError(f"{field}.{key}: expected a string, found {quoted(value)} (write it in quotes)")
        read[str(key)] = value
    return read


def _taints(entry: Mapping[str, Any]) -> list[dict[str, str]]:
    taints = entry.get("taints") or []
    if not isinstance(taints, list):
        raise _EntryError(f"taints: expected a list, found {quoted(taints)}")
    read = []
    for taint in taints:
        if not isinstance(taint, dict) or not taint.get("key") or taint.get("effect") not in _EFFECTS:
            raise _EntryError(f"taints: {quoted(taint)} needs a key and an effect ({', '.join(_EFFECTS)})")
        read.append({key: str(taint[key]) for key in ("key", "value", "effect") if taint.get(key) is not None})
    return read


def _mapping(entry: Mapping[str, Any], field: str) -> dict[str, Any]:
    value = entry.get(field)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise _EntryError(f"{field}: expected names and values, found {quoted(value)}")
    return value
