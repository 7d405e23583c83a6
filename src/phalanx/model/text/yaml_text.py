"""YAML from other programs, decoded to plain JSON values within limits."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import yaml

from phalanx.model.text.decoding import MAX_DEPTH, MAX_NUMBER, decode_json, quoted

# Maximum number of values in a document with expanded aliases.
MAX_VALUES = 500_000
_MERGED = "tag:yaml.org,2002:merge"

_Base: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _Loader(_Base):  # type: ignore[misc]
    """Loader of YAML's core schema: a date is a text, as in JSON."""

    yaml_implicit_resolvers = {  # noqa: RUF012 - the loader's own way to be configured
        first: [(tag, pattern) for tag, pattern in found if not tag.endswith(":timestamp")]
        for first, found in _Base.yaml_implicit_resolvers.items()
    }


def _number(loader: Any, node: yaml.ScalarNode) -> float | str:
    """Construct a number of YAML; one unknown to JSON (`.nan`, `.inf`) becomes a text, so that the reader of the
    field can report it."""
    value = float(_Base.construct_yaml_float(loader, node))
    return value if abs(value) < float("inf") else str(value)


_Loader.add_constructor("tag:yaml.org,2002:float", _number)


def decode_yaml(text: str | bytes) -> Any:
    """Decode one YAML document; None if the text has none. Raise yaml.YAMLError for any error."""
    documents = list(decode_yaml_all(text))
    if len(documents) > 1:
        raise yaml.YAMLError("expected a single document in the stream")
    return documents[0] if documents else None


def decode_yaml_all(text: str | bytes) -> Iterator[Any]:
    """Decode and yield each YAML document. Raise yaml.YAMLError for any error."""
    try:
        _check_depth(text)
        loader = _Loader(text)
        try:
            while loader.check_node():
                node = loader.get_node()
                _check(node)
                yield _plain(loader.construct_document(node))
        finally:
            loader.dispose()
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError) as error:
        # A text does not match its tag, or a key is not a text.
        raise yaml.YAMLError(f"{type(error).__name__}: {error}") from None


class RepeatedKey(msgspec.Struct, frozen=True):
    """Key that occurs twice in one YAML mapping; the last value counts.

    `place` has the form tiers[0].plugins[1].name; lines count from 1.
    """

    place: str
    first: int
    again: int

    def told(self, lines_before: int = 0) -> str:
        """Return the message about the repeated key; `lines_before` is the number of lines before the text in its
        file."""
        lines = f"on lines {self.first + lines_before} and {self.again + lines_before}"
        return f"{self.place}: the key occurs twice, {lines}; keep one of them"


def repeated_keys(text: str) -> list[RepeatedKey]:
    """Return the repeated keys in a YAML text that `decode_yaml` accepts."""
    repeated: list[RepeatedKey] = []
    known: set[int] = set()
    root = yaml.compose(text, Loader=_Loader)
    pending: list[tuple[yaml.Node, str]] = [(root, "")] if root is not None else []
    while pending:
        node, place = pending.pop()
        # The node of an alias is visited once.
        if id(node) in known:
            continue
        known.add(id(node))
        if isinstance(node, yaml.SequenceNode):
            pending += [(item, f"{place}[{at}]") for at, item in enumerate(node.value)]
        elif isinstance(node, yaml.MappingNode):
            lines: dict[str, int] = {}
            for key, value in node.value:
                here = f"{place}.{key.value}" if place else str(key.value)
                line = key.start_mark.line + 1
                if key.value in lines:
                    repeated.append(RepeatedKey(here, lines[key.value], line))
                elif isinstance(key, yaml.ScalarNode) and key.tag != _MERGED:
                    lines[key.value] = line
                pending.append((value, here))
    return sorted(repeated, key=lambda item: (item.again, item.place))


def _check_depth(text: str | bytes) -> None:
    """Raise yaml.YAMLError if the text is nested too deep: the loader recurses in C, where deep nesting crashes the
    process."""
    depth = 0
    for event in yaml.parse(text, Loader=_Loader):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > MAX_DEPTH:
                raise yaml.YAMLError(f"it is nested more than {MAX_DEPTH} levels deep")
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1


def _plain(value: Any) -> Any:
    return decode_json(msgspec.json.encode(value))


def _check(root: yaml.Node) -> None:
    """Raise yaml.YAMLError for a document that is too large with expanded aliases, or infinite."""
    sizes: dict[int, int] = {}
    path: list[tuple[yaml.Node, Iterator[yaml.Node]]] = [(root, _children(root))]
    around = {id(root)}
    total = [1]
    while path:
        node, children = path[-1]
        child = next(children, None)
        if child is None:
            path.pop()
            around.discard(id(node))
            sizes[id(node)] = total.pop()
            if total:
                total[-1] += sizes[id(node)]
        elif id(child) in around:
            raise yaml.YAMLError("an alias contains itself")
        elif id(child) in sizes:
            total[-1] += sizes[id(child)]
        else:
            path.append((child, _children(child)))
            around.add(id(child))
            total.append(1)
        if total and total[-1] > MAX_VALUES:
            raise yaml.YAMLError("document contains excessive aliasing")


def _children(node: yaml.Node) -> Iterator[yaml.Node]:
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            yield key
            yield value
    elif isinstance(node, yaml.SequenceNode):
        yield from node.value
    elif node.tag.endswith((":int", ":float")) and len(node.value) > MAX_NUMBER:
        raise yaml.YAMLError(f"{quoted(node.value)} is too long for a number")
