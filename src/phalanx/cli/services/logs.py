"""Logging of long-running commands: one line per log record, as text or JSON."""

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
    help="Lowest level of log lines.",
)
log_format_option = click.option(
    "--log-format",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="Format of log lines.",
)
log_options = combined(log_level_option, log_format_option)


@dataclass(frozen=True, kw_only=True)
class LogArguments:
    """Log arguments of every long-running command."""

    log_level: str
    log_format: str

    def set_up_logging(self) -> None:
        set_up_logging(self.log_level, self.log_format)


# A log entry already has the field `message`, so a structured field of that name is renamed.
_RENAMED = {"message": "detail"}


class JsonFormatter(logging.Formatter):
    """Formatter that writes the fields of a log record (`extra={"fields": …}`) beside its message, as JSON."""

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
    """Formatter that appends the fields of a log record to its message, as name=value."""

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
    """Configure logging to stderr; stdout is reserved for answers."""
    handler = logging.StreamHandler(sys.stderr)
    if style == "json":
        handler.setFormatter(JsonFormatter())
    else:
        handler.setFormatter(TextFormatter("%(asctime)s %(levelname)-7s %(name)s: %(message)s", "%H:%M:%S"))
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
