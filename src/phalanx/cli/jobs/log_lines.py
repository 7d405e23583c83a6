"""Printing of the log lines of a job's pods."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from phalanx.reports.jobs.entries import PodEntry


class LogPrinter:
    """Printer of log lines; with `prefix` each line begins with the name of its pod."""

    def __init__(self, *, prefix: bool) -> None:
        self._prefix = prefix

    def line(self, pod: PodEntry, container: str, line: bytes) -> None:
        several = len(pod.containers) > 1
        head = f"[{pod.name}{f'/{container}' if several else ''}] " if self._prefix else ""
        sys.stdout.buffer.write(head.encode() + line + b"\n")
        sys.stdout.buffer.flush()

    def unreadable(self, pod: PodEntry, cause: str) -> None:
        click.echo(f"{pod.name}: cannot read logs: {cause}", err=True)
