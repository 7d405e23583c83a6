"""Answers on stdout, once or again and again."""

from __future__ import annotations

import json
import shutil
import sys
import time

import click
import msgspec

_HOME, _CLEAR = "\x1b[H", "\x1b[2J"


class Display:
    """Prints what it is shown. A `live` one prints only what is new: on a terminal in the place of the last, else
    below it, apart by an empty line (YAML: as a document of its own, JSON: one line each).
    """

    def __init__(self, output: str, *, live: bool) -> None:
        self._output = output
        self._live = live
        self._last: str | None = None
        self._told: tuple[str, ...] = ()

    def show(self, answer: list[str] | object, warnings: list[str]) -> None:
        text = self._text(answer)
        redraws = self._live and self._output in ("table", "wide") and sys.stdout.isatty()
        news = text != self._last
        if news and redraws:
            head = time.strftime("%H:%M:%S") + "   (ctrl-c ends)"
            click.echo(_CLEAR + _HOME + _cut([head, "", *text.splitlines()]), nl=False)
        elif news:
            apart = self._last is not None and self._output != "json"
            click.echo(("---\n" if self._output == "yaml" else "\n" if apart else "") + text if apart else text)
        if tuple(warnings) != self._told or (news and redraws):
            for warning in warnings:
                click.echo(f"warning: {warning}", err=True)
        self._last, self._told = text, tuple(warnings)
        sys.stdout.flush()

    def complain(self, text: str) -> None:
        click.echo(f"warning: {text}", err=True)

    def _text(self, answer: list[str] | object) -> str:
        if self._output in ("table", "wide"):
            assert isinstance(answer, list)
            return "\n".join(answer)
        document = msgspec.to_builtins(answer)
        if self._output == "json":
            return json.dumps(document, indent=None if self._live else 2, ensure_ascii=False)
        import yaml

        return str(yaml.safe_dump(document, sort_keys=False, allow_unicode=True)).rstrip("\n")


def _cut(lines: list[str]) -> str:
    """As many lines as the terminal has, and how many are missing."""
    height = shutil.get_terminal_size().lines
    if len(lines) >= height > 2:
        lines = [*lines[: height - 2], f"... {len(lines) - height + 2} more lines"]
    return "\n".join(lines) + "\n"
