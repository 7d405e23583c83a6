"""HyperNode of topology.volcano.sh: the domains of a network, told by objects."""

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
    """(the domain, what of it does not hold). A tier that cannot be read leaves the HyperNode without members; of
    the members only those do not count that cannot be read."""
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
    return hypernode, tuple(each.message for each in (*reader.problems[:1], *reader.warnings))


class _UnreadableError(Exception):
    """A member that does not count: the field, its value, what to write."""


def _members(reader: HyperNodeReader) -> tuple[HyperNodeMember, ...]:
    stated = reader.spec.get("members") or []
    if not isinstance(stated, list):
        reader.refuse("spec.members", stated, "write a list of {type: Node, selector: {exactMatch: {name: n1}}}")
        return ()
    found: list[HyperNodeMember] = []
    for place, entry in enumerate(stated):
        try:
            found.append(_member(f"spec.members[{place}]", entry))
        except _UnreadableError as error:
            field, value, advice = error.args
            reader.warn("InvalidHyperNode", field, value, f"{advice}; until then this member does not count")
    return tuple(found)


def _member(field: str, entry: object) -> HyperNodeMember:
    if not isinstance(entry, Mapping):
        raise _UnreadableError(field, entry, "write {type: Node, selector: {exactMatch: {name: n1}}}")
    kind, selector = entry.get("type"), entry.get("selector")
    if kind not in ("Node", "HyperNode"):
        raise _UnreadableError(f"{field}.type", kind, "write Node or HyperNode")
    stated = [name for name in _SELECTORS if isinstance(selector, Mapping) and selector.get(name) is not None]
    if not isinstance(selector, Mapping) or len(stated) != 1:
        raise _UnreadableError(f"{field}.selector", selector, f"write exactly one of {', '.join(_SELECTORS)}")
    nested, how = kind == "HyperNode", stated[0]
    path, value = f"{field}.selector.{how}", selector[how]
    if how == "labelMatch":
        if nested:
            raise _UnreadableError(path, value, "labels select Nodes; name HyperNodes instead")
        try:
            return HyperNodeMember(labels=read_selector(value))
        except IllegibleSelectorError as error:
            raise _UnreadableError(path, value, str(error)) from None
    key = "name" if how == "exactMatch" else "pattern"
    text = value.get(key) if isinstance(value, Mapping) else None
    if not isinstance(text, str) or not text:
        raise _UnreadableError(f"{path}.{key}", text, "write a text")
    if how == "exactMatch":
        return HyperNodeMember(nested=nested, name=text)
    try:
        compile_pattern(text)
    except PatternError as error:
        raise _UnreadableError(f"{path}.pattern", text, f"this is no regular expression ({error})") from None
    return HyperNodeMember(nested=nested, pattern=text)


class HyperNodes(PodEnricher):
    """The HyperNodes of a cluster as facts, whatever order they come in."""

    kinds = (HYPER_NODES,)

    def __init__(self, warnings: ObjectWarnings) -> None:
        self._object_warnings = warnings
        self._told: dict[str, tuple[str, ...]] = {}

    def updated(self, kind: ServedKind, document: Document) -> Changes:
        hypernode, faults = read_hypernode(kind, document)
        metadata = document.get("metadata")
        uid = str(metadata.get("uid") or "") if isinstance(metadata, Mapping) else ""
        return self._changes_of(kind, hypernode, uid, faults)

    def removed(self, kind: ServedKind, namespace: str, name: str) -> Changes:
        if self._told.pop(name, None) is None:
            return [], set()
        return [HyperNodeRemoved(name)], set()

    def malformed(self, kind: ServedKind, namespace: str, name: str, uid: str, error: str) -> Changes:
        problem = f"HyperNode {name}: cannot be read: {error}"
        return self._changes_of(kind, HyperNode(name, problem=problem), uid, (problem,))

    def unserved(self, kind: ServedKind) -> Changes:
        names, self._told = sorted(self._told), {}
        return [HyperNodeRemoved(name) for name in names], set()

    def _changes_of(self, kind: ServedKind, hypernode: HyperNode, uid: str, faults: tuple[str, ...]) -> Changes:
        name, last = hypernode.name, self._told.get(hypernode.name, ())
        self._told[name] = faults
        about = ObjectRef(kind.api_version, kind.kind, "", name, uid)
        for fault in faults:
            if fault not in last:
                notice = ObjectWarning(about, "Warning", "InvalidHyperNode", fault)
                self._object_warnings.add(notice, partial(self._says, name, fault))
        return [HyperNodeUpdated(hypernode)], set()

    def _says(self, name: str, fault: str) -> bool:
        return fault in self._told.get(name, ())
