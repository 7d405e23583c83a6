"""HyperNode of topology.volcano.sh: objects that describe the domains of a network."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from phalanx.dialects.enricher import Changes, PodEnricher
from phalanx.dialects.kinds import ServedKind, WantedKind
from phalanx.dialects.label_selectors import IllegibleSelectorError, read_selector
from phalanx.dialects.reader import Document, ObjectReader, is_whole
from phalanx.dialects.warnings import ObjectRef, ObjectWarning, ObjectWarnings
from phalanx.model.events import HyperNodeRemoved, HyperNodeUpdated
from phalanx.model.text.patterns import PatternError, compile_pattern
from phalanx.model.topology import HyperNode, HyperNodeMember

HYPER_NODES = WantedKind("topology.volcano.sh", "hypernodes", "HyperNode", ("v1alpha1",))

_SELECTORS = ("exactMatch", "regexMatch", "labelMatch")


class HyperNodeReader(ObjectReader):
    code = "InvalidHyperNode"


def read_hypernode(resource: ServedKind, document: Document) -> tuple[HyperNode, tuple[str, ...]]:
    """Decode a HyperNode; return its domain, and messages about its faults. An unreadable tier leaves the HyperNode
    without members; an unreadable member does not count."""
    reader = HyperNodeReader(resource, document)
    tier = reader.spec.get("tier", 0)
    if not is_whole(tier) or tier < 0:
        reader.refuse("spec.tier", tier, "write a whole number of at least 0, such as 1")
        tier = 0
    tier_name = reader.text("tierName")
    members = _members(reader)
    problem = reader.problem
    hypernode = HyperNode(
        name=reader.ref.name,
        tier=tier,
        tier_name=tier_name,
        members=() if problem else members,
        problem=problem.message if problem else "",
    )
    return hypernode, tuple(
        problem_or_warning.message for problem_or_warning in (*reader.problems[:1], *reader.warnings)
    )


class _UnreadableError(Exception):
    """Unreadable member of a HyperNode: its field, its value, and advice."""


def _members(reader: HyperNodeReader) -> tuple[HyperNodeMember, ...]:
    stated = reader.spec.get("members") or []
    if not isinstance(stated, list):
        reader.refuse("spec.members", stated, "write a list of {type: Node, selector: {exactMatch: {name: n1}}}")
        return ()
    members: list[HyperNodeMember] = []
    for place, entry in enumerate(stated):
        try:
            members.append(_member(f"spec.members[{place}]", entry))
        except _UnreadableError as error:
            field, value, advice = error.args
            reader.warn("InvalidHyperNode", field, value, f"{advice}; until then this member does not count")
    return tuple(members)


def _member(field: str, entry: object) -> HyperNodeMember:
    if not isinstance(entry, Mapping):
        raise _UnreadableError(field, entry, "write {type: Node, selector: {exactMatch: {name: n1}}}")
    kind, selector = entry.get("type"), entry.get("selector")
    if kind not in ("Node", "HyperNode"):
        raise _UnreadableError(f"{field}.type", kind, "write Node or HyperNode")
    stated = [name for name in _SELECTORS if isinstance(selector, Mapping) and selector.get(name) is not None]
    if not isinstance(selector, Mapping) or len(stated) != 1:
        raise _UnreadableError(f"{field}.selector", selector, f"write exactly one of {', '.join(_SELECTORS)}")
    nested, method = kind == "HyperNode", stated[0]
    path, value = f"{field}.selector.{method}", selector[method]
    if method == "labelMatch":
        if nested:
            raise _UnreadableError(path, value, "labels select Nodes; name HyperNodes instead")
        try:
            return HyperNodeMember(labels=read_selector(value))
        except IllegibleSelectorError as error:
            raise _UnreadableError(path, value, str(error)) from None
    key = "name" if method == "exactMatch" else "pattern"
    text = value.get(key) if isinstance(value, Mapping) else None
    if not isinstance(text, str) or not text:
        raise _UnreadableError(f"{path}.{key}", text, "write a text")
    if method == "exactMatch":
        return HyperNodeMember(nested=nested, name=text)
    try:
        compile_pattern(text)
    except PatternError as error:
        raise _UnreadableError(f"{path}.pattern", text, f"this is not a regular expression ({error})") from None
    return HyperNodeMember(nested=nested, pattern=text)


class HyperNodes(PodEnricher):
    """Processes the HyperNodes of a cluster, in any order."""

    kinds = (HYPER_NODES,)

    def __init__(self, warnings: ObjectWarnings) -> None:
        self._object_warnings = warnings
        self._faults: dict[str, tuple[str, ...]] = {}

    def updated(self, kind: ServedKind, document: Document) -> Changes:
        hypernode, faults = read_hypernode(kind, document)
        metadata = document.get("metadata")
        uid = str(metadata.get("uid") or "") if isinstance(metadata, Mapping) else ""
        return self._changes_of(kind, hypernode, uid, faults)

    def removed(self, kind: ServedKind, namespace: str, name: str) -> Changes:
        if self._faults.pop(name, None) is None:
            return [], set()
        return [HyperNodeRemoved(name)], set()

    def malformed(self, kind: ServedKind, namespace: str, name: str, uid: str, error: str) -> Changes:
        problem = f"HyperNode {name}: cannot be read: {error}"
        return self._changes_of(kind, HyperNode(name, problem=problem), uid, (problem,))

    def unserved(self, kind: ServedKind) -> Changes:
        names, self._faults = sorted(self._faults), {}
        return [HyperNodeRemoved(name) for name in names], set()

    def _changes_of(self, kind: ServedKind, hypernode: HyperNode, uid: str, faults: tuple[str, ...]) -> Changes:
        name, last = hypernode.name, self._faults.get(hypernode.name, ())
        self._faults[name] = faults
        about = ObjectRef(kind.api_version, kind.kind, "", name, uid)
        for fault in faults:
            if fault not in last:
                notice = ObjectWarning(about, "Warning", "InvalidHyperNode", fault)
                self._object_warnings.add(notice, partial(self._is_current, name, fault))
        return [HyperNodeUpdated(hypernode)], set()

    def _is_current(self, name: str, fault: str) -> bool:
        return fault in self._faults.get(name, ())
