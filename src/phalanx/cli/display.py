"""Output of a command's answer on stdout, once or repeatedly."""

from __future__ import annotations

import json
import shutil
import sys
import time

import click
import msgspec

_HOME, _CLEAR = "\x1b[H", "\x1b[2J"


class Display:
    """Printer of answers. A live display (--watch) prints only changed answers.

    On a terminal a changed answer replaces the last one. Elsewhere it follows after an empty line (YAML: as a new
    document; JSON: one line each).
    """

    def __init__(self, output: str, *, live: bool) -> None:
        self._output = output
        self._live = live
        self._last: str | None = None
        self._last_warnings: tuple[str, ...] = ()

    def show(self, answer: list[str] | object, warnings: list[str]) -> None:
        text = self._text(answer)
        redraws = self._live and self._output in ("table", "wide") and sys.stdout.isatty()
        changed = text != self._last
        if changed and redraws:
            head = time.strftime("%H:%M:%S") + "   (ctrl-c ends)"
            click.echo(_CLEAR + _HOME + _cut([head, "", *text.splitlines()]), nl=False)
        elif changed:
            separate = self._last is not None and self._output != "json"
            click.echo(
                ("---\n" if self._output == "yaml" else "\n" if separate else "") + text if separate else text
            )
        if tuple(warnings) != self._last_warnings or (changed and redraws):
            for warning in warnings:
                click.echo(f"warning: {warning}", err=True)
        self._last, self._last_warnings = text, tuple(warnings)
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
    """Return the lines of an answer that fit on the terminal, with the number of omitted lines."""
    height = shutil.get_terminal_size().lines
    if len(lines) >= height > 2:
        lines = [*lines[: height - 2], f"... {len(lines) - height + 2} more lines"]
    return "\n".join(lines) + "\n"
