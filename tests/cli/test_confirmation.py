"""Confirmation of the commands that delete jobs."""

from __future__ import annotations

import click.testing
import pytest

from phalanx.cli.main import cli
from phalanx.cli.orders import confirmation
from phalanx.cli.orders.confirmation import CancelArguments, confirmed


def arguments(*, yes: bool = False) -> CancelArguments:
    return CancelArguments(names=("a",), namespace=None, yes=yes, dry_run=False)


def answer(typed: str, *, yes: bool = False) -> tuple[bool, str]:
    """Return the answer of `confirmed` and its question, with `typed` on stdin."""
    answers: list[bool] = []

    @click.command()
    def command() -> None:
        answers.append(confirmed("vcjob/a", arguments(yes=yes)))

    result = click.testing.CliRunner().invoke(command, input=typed)
    return bool(answers and answers[0]), result.output


def test_a_terminal_is_asked_and_no_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(confirmation, "on_terminal", lambda: True)
    assert answer("y\n") == (True, "Delete vcjob/a? [y/N]: y\n")
    assert answer("\n")[0] is False
    assert answer("", yes=True) == (True, "")


def test_a_script_is_not_asked() -> None:
    assert answer("") == (True, "")


@pytest.mark.parametrize("command", [["cancel"], ["job", "cancel"]])
def test_both_cancel_commands_have_yes_and_dry_run(command: list[str]) -> None:
    shown = click.testing.CliRunner().invoke(cli, [*command, "--help"]).output
    assert "--yes" in shown
    assert "--dry-run" in shown
