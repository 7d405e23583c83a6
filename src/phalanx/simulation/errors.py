"""Errors in the input of a simulation."""

from __future__ import annotations

from collections.abc import Sequence


class InputError(Exception):
    """Invalid input; the message names the file, the line or field, and the expected value."""


class OptionError(InputError):
    """Invalid `value` of an `option` of a command, which is an argument of a call in Python; `problem` continues a
    sentence that begins with both. `others` are the options that it names."""

    def __init__(self, option: str, value: str, problem: str, *, others: Sequence[str] = ()) -> None:
        super().__init__(f"--{option}{f' {value}' if value else ''}{problem}")
        self.option = option
        self.value = value
        self.problem = problem
        self.others = tuple(others)

    @property
    def argument(self) -> str:
        """Name of the option as an argument of a call in Python."""
        return self.option.replace("-", "_")

    @property
    def python_message(self) -> str:
        """Message with the names of Python's arguments."""
        problem = self.problem
        for other in self.others:
            problem = problem.replace(f"--{other}", other.replace("-", "_"))
        return f"{self.argument}{f' {self.value}' if self.value else ''}{problem}"
