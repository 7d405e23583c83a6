"""Output formats of a list, as of kubectl's `-o`."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import click

from phalanx.cli.listing.harmless import harmless, harmless_json
from phalanx.model.text.decoding import quoted
from phalanx.model.text.jsonpath import Path, compile_path
from phalanx.model.text.jsonpath_template import Template, value_text

_WORDS = ("wide", "json", "yaml", "name")
CHOICES = "wide, json, yaml, name, jsonpath=TEMPLATE or custom-columns=HEADER:PATH,..."
NONE = "<none>"


@dataclass(frozen=True)
class OutputFormat:
    """Parsed value of `-o`; `word` is table, wide, json, yaml, name, jsonpath or custom-columns."""

    word: str = "table"
    template: Template | None = None
    columns: tuple[tuple[str, Path], ...] = ()

    @property
    def tabular(self) -> bool:
        return self.word in ("table", "wide", "custom-columns")


def parse_output(ctx: click.Context, param: click.Parameter, value: str) -> OutputFormat:
    """Parse the value of `-o` (`-o wide`, `-ojson`, `-o=name`). Raises click.BadParameter."""
    word, equal, rest = value.removeprefix("=").partition("=")
    try:
        if word in ("", "table") and not equal:
            return OutputFormat()
        if word in _WORDS and not equal:
            return OutputFormat(word)
        if word == "jsonpath" and rest:
            return OutputFormat(word, Template(rest))
        if word == "custom-columns" and rest:
            return OutputFormat(word, columns=_columns(rest))
    except ValueError as error:
        raise click.BadParameter(str(error), ctx, param) from error
    if word in ("jsonpath", "custom-columns"):
        needs = "a template" if word == "jsonpath" else "a specification"
        raise click.BadParameter(f"-o {word} needs {needs}", ctx, param)
    raise click.BadParameter(f"unknown output format {quoted(value)}; expected {CHOICES}", ctx, param)


def _columns(text: str) -> tuple[tuple[str, Path], ...]:
    columns = []
    for part in _split(text):
        header, colon, path = part.partition(":")
        if not header or not colon or not path:
            raise ValueError(
                f"custom-columns: invalid column {quoted(part)}; write HEADER:PATH, such as NAME:.name"
            )
        columns.append((header, compile_path(path)))
    return tuple(columns)


def _split(text: str) -> list[str]:
    """Split `text` at commas outside of brackets (a JSONPath filter can contain commas)."""
    parts, depth, start = [], 0, 0
    for index, character in enumerate(text):
        depth += (character == "[") - (character == "]")
        if character == "," and depth == 0:
            parts.append(text[start:index])
            start = index + 1
    return [*parts, text[start:]]


def custom_cells(columns: Sequence[tuple[str, Path]], document: Any) -> list[str]:
    """Return one row of `-o custom-columns`; a missing value is `<none>`."""
    return [",".join(value_text(value) for value in path.find(document)) or NONE for _, path in columns]


def print_documents(documents: list[Any], form: OutputFormat, name: Callable[[int], str], *, single: bool) -> str:
    """Format the entries of a list as JSON, YAML, names or JSONPath output.

    With `single` each document stands alone; otherwise they are the `items` of one list. `name` returns the text of
    `-o name` for the document with that index.
    """
    if form.word == "name":
        return "".join(f"{harmless(name(index))}\n" for index in range(len(documents)))
    if form.template is not None:
        parts = documents if single else [{"kind": "List", "items": documents}]
        return "".join(form.template.render(part) for part in parts)
    if form.word == "yaml":
        import yaml

        if single:
            return "".join(f"---\n{yaml.safe_dump(document, sort_keys=False)}" for document in documents)
        return str(yaml.safe_dump({"kind": "List", "items": documents}, sort_keys=False))
    if single:
        return "".join(harmless_json(json.dumps(document, ensure_ascii=False)) + "\n" for document in documents)
    return harmless_json(json.dumps({"kind": "List", "items": documents}, indent=2, ensure_ascii=False)) + "\n"
