"""Logging of the long-running commands: one line an event, as text or JSON."""

from __future__ import annotations

import logging
import sys
from dataclasses import dataclass

import click
import msgspec

from phalanx.cli.arguments import combined

log_level_option = click.option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error"]),
    default="info",
    show_default=True,
    help="What is worth a line.",
)
log_format_option = click.option(
    "--log-format", type=click.Choice(["text", "json"]), default="text", show_default=True, help="How a line looks."
)
log_options = combined(log_level_option, log_format_option)


@dataclass(frozen=True, kw_only=True)
class LogArguments:
    """Arguments that every long-running command has."""

    log_level: str
    log_format: str

    def set_up_logging(self) -> None:
        set_up_logging(self.log_level, self.log_format)


# A line has a message of its own.
_RENAMED = {"message": "detail"}


class JsonFormatter(logging.Formatter):
    """The fields of a line (`extra={"fields": …}`) stand beside its message."""

    def format(self, record: logging.LogRecord) -> str:
        entry: dict[str, object] = {
            "time": self.formatTime(record, "%Y-%m-%dT%H:%M:%S%z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        for name, value in _fields(record).items():
            entry.setdefault(_RENAMED.get(name, name), value)
        if record.exc_info:
            entry["exception"] = self.formatException(record.exc_info)
        return msgspec.json.encode(entry).decode()


class TextFormatter(logging.Formatter):
    """The fields of a line follow its message, as name=value."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's name
        pairs = (f" {name}={_quoted(value)}" for name, value in _fields(record).items())
        return super().formatMessage(record) + "".join(pairs)


def _fields(record: logging.LogRecord) -> dict[str, object]:
    fields: dict[str, object] = getattr(record, "fields", {})
    return fields


def _quoted(value: object) -> str:
    text = str(value)
    plain = text.isascii() and text.isprintable() and not any(mark in text for mark in ' "=')
    return text if plain else msgspec.json.encode(text).decode()


def set_up_logging(level: str, style: str) -> None:
    """Log lines go to stderr; stdout is for answers."""
    handler = logging.StreamHandler(sys.stderr)
    if style == "json":
        handler.setFormatter(JsonFormatter())
    else:
        handler.setFormatter(TextFormatter("%(asctime)s %(levelname)-7s %(name)s: %(message)s", "%H:%M:%S"))
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
