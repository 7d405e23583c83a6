"""Templates of kubectl: text with JSONPaths in braces, such as `{range .items[*]}{.name}{"\n"}{end}`."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

from phalanx.model.text.decoding import quoted
from phalanx.model.text.jsonpath import Path, compile_path

#: Part in braces: quoted text, or a path without braces outside of quotes.
_BRACES: Final = re.compile(r"""\{\s*((?:"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|[^{}"'])*)\}""")
_ESCAPES: Final = {"n": "\n", "t": "\t", "r": "\r"}
_HERE: Final = frozenset({"", "@", "$", "."})


class _Text(NamedTuple):
    text: str


class _Value(NamedTuple):
    """Part of a kubectl template: the value at `path`; None for the object itself."""

    path: Path | None


class _Range(NamedTuple):
    path: Path | None
    body: tuple[_Text | _Value | _Range, ...]


_Part = _Text | _Value | _Range


class Template:
    """Compiled kubectl template. Raises ValueError for a malformed template."""

    def __init__(self, source: str) -> None:
        parts, unparsed = _parse(list(_pieces(source)), inside=False)
        assert not unparsed
        self._parts = parts

    def render(self, document: Any) -> str:
        """Render the template for a document. Several values of a path are joined by spaces; missing values are
        empty."""
        return "".join(_render(self._parts, document))


def value_text(value: Any) -> str:
    """Format a JSON value: a string as it is, other values as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _pieces(source: str) -> Iterator[tuple[bool, str]]:
    """Yield (whether in braces, text) of each piece of a kubectl template. A template without braces is one path,
    as in kubectl."""
    if "{" not in source and "}" not in source:
        yield True, source.strip()
        return
    at = 0
    for match in _BRACES.finditer(source):
        yield False, _without_braces(source[at : match.start()], source)
        yield True, match[1].strip()
        at = match.end()
    yield False, _without_braces(source[at:], source)


def _without_braces(text: str, source: str) -> str:
    if "{" in text or "}" in text:
        raise ValueError(f"{quoted(source)} is no JSONPath template: it has an unbalanced brace")
    return text


def _parse(
    pieces: Sequence[tuple[bool, str]], *, inside: bool
) -> tuple[tuple[_Part, ...], Sequence[tuple[bool, str]]]:
    """Parse the pieces of a kubectl template up to its end, or to the `{end}` of the enclosing range; also return
    the pieces after it."""
    parts: list[_Part] = []
    while pieces:
        (braces, text), pieces = pieces[0], pieces[1:]
        if not braces:
            parts += [_Text(text)] * bool(text)
        elif text[:1] in ("'", '"'):
            parts.append(_Text(_unquoted(text)))
        elif text == "end":
            if not inside:
                raise ValueError("the JSONPath template has an {end} without a {range}")
            return tuple(parts), pieces
        elif text.split(maxsplit=1)[:1] == ["range"]:
            body, pieces = _parse(pieces, inside=True)
            parts.append(_Range(_path(text[len("range") :]), body))
        else:
            parts.append(_Value(_path(text)))
    if inside:
        raise ValueError("the JSONPath template has a {range} without its {end}")
    return tuple(parts), pieces


def _path(text: str) -> Path | None:
    text = text.strip()
    if text in _HERE:
        return None
    return compile_path(text[1:] if text.startswith("@") else text)


def _unquoted(text: str) -> str:
    if len(text) < 2 or text[-1] != text[0]:
        raise ValueError(f"{quoted(text)} in the JSONPath template is neither quoted text nor a path")
    return re.sub(r"\\(.)", lambda found: _ESCAPES.get(found[1], found[1]), text[1:-1])


def _render(parts: Sequence[_Part], here: Any) -> Iterator[str]:
    for part in parts:
        if isinstance(part, _Text):
            yield part.text
            continue
        values = [here] if part.path is None else part.path.find(here)
        if isinstance(part, _Value):
            yield " ".join(map(value_text, values))
        else:
            for value in values:
                yield from _render(part.body, value)
