"""Selectors of DeviceClasses and ResourceClaims, compiled once, with cached results.

The CEL runtime is imported with the first selector: most clusters have none.
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
    """Compiled CEL expressions by text, and results by text and the relevant part of a device."""

    def __init__(self) -> None:
        self._env: object = None
        # A text describes an error: a cached exception would retain all its frames.
        self._programs: dict[str, Program | str] = {}
        self._answers: dict[tuple[str, Hashable], bool | str] = {}

    def compiled(self, text: str) -> Program:
        """Return the compiled CEL expression. Raise SelectorError."""
        program = self._programs.get(text)
        if program is None:
            if len(self._programs) >= _MOST_PROGRAMS:
                self._programs.clear()
            try:
                program = self._compile(text)
            except SelectorError as error:
                program = str(error)
            self._programs[text] = program
        if isinstance(program, str):
            raise SelectorError(program)
        return program

    def matches(self, text: str, driver: str, device: Device) -> bool:
        """Return whether the CEL expression selects the device. Raise SelectorError."""
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
        """Compile a CEL expression, without the cache. Raise SelectorError."""
        from phalanx.cluster.dra.expressions import Program, environment

        if self._env is None:
            self._env = environment()
        return Program(self._env, text)
