"""The selectors of device classes and claims, compiled once, with the answers that they gave.

The runtime of the expression language is loaded when the first selector comes: most clusters have none.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING

from phalanx.cluster.dra.errors import SelectorError
from phalanx.model.devices.claims import Device

if TYPE_CHECKING:
    from phalanx.cluster.dra.expressions import Program

_MOST_ANSWERS = 1 << 18
_MOST_PROGRAMS = 4096


class Selectors:
    """Expressions and answers by text and by what of a device can make a difference."""

    def __init__(self) -> None:
        self._env: object = None
        # A text is why there is no answer: an exception that is raised again and again would keep all its frames.
        self._programs: dict[str, Program | str] = {}
        self._answers: dict[tuple[str, Hashable], bool | str] = {}

    def compiled(self, text: str) -> Program:
        """Raises SelectorError."""
        found = self._programs.get(text)
        if found is None:
            if len(self._programs) >= _MOST_PROGRAMS:
                self._programs.clear()
            try:
                found = self._compile(text)
            except SelectorError as error:
                found = str(error)
            self._programs[text] = found
        if isinstance(found, str):
            raise SelectorError(found)
        return found

    def matches(self, text: str, driver: str, device: Device) -> bool:
        """Raises SelectorError."""
        program = self.compiled(text)
        key = text, program.sees(driver, device)
        answer = self._answers.get(key)
        if answer is None:
            if len(self._answers) >= _MOST_ANSWERS:
                self._answers.clear()
            try:
                answer = program.evaluate(driver, device)
            except SelectorError as error:
                answer = str(error)
            self._answers[key] = answer
        if isinstance(answer, str):
            raise SelectorError(answer)
        return answer

    def _compile(self, text: str) -> Program:
        """Raises SelectorError."""
        from phalanx.cluster.dra.expressions import Program, environment

        if self._env is None:
            self._env = environment()
        return Program(self._env, text)
