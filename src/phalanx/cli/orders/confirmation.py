"""Options and confirmation of the commands that delete jobs."""

from __future__ import annotations

import sys
from dataclasses import dataclass

import click

from phalanx.cli.arguments import TargetsArguments, combined


@dataclass(frozen=True, kw_only=True)
class CancelArguments(TargetsArguments):
    """Arguments of a command that deletes jobs."""

    yes: bool
    dry_run: bool


cancel_options = combined(
    click.option("-y", "--yes", is_flag=True, help="Delete without confirmation."),
    click.option("--dry-run", is_flag=True, help="Print the objects that would be deleted; delete nothing."),
)


def on_terminal() -> bool:
    """Return whether a person can answer a question on stdin."""
    return sys.stdin.isatty()


def confirmed(objects: str, arguments: CancelArguments) -> bool:
    """Ask on a terminal whether to delete `objects`. Return the answer; True with --yes or without a terminal."""
    return arguments.yes or not on_terminal() or click.confirm(f"Delete {objects}?", err=True)
