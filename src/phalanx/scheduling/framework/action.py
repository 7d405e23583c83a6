"""What an action of a third party is: a class with one method that takes a cycle's session."""

from __future__ import annotations

from typing import ClassVar

from phalanx.scheduling.framework.arguments import Arguments
from phalanx.scheduling.framework.view import ActionView


class Action:
    """A step of the cycle, run where the policy's `actions:` name it.

    One instance lives as long as the policy that names it. It keeps no reference to the cluster between cycles and
    must be deterministic. What it decides goes through the session, whole or not at all; if it raises, whatever it
    had decided for gangs in this cycle is taken back, the failure is told under its name, the actions after it have
    their turn, and it is left out for a minute.
    """

    name: ClassVar[str]
    arguments: ClassVar[tuple[str, ...]] = ()
    """The argument keys that `configurations:` may carry for it; a key that ends in `*` stands for a prefix."""

    def __init__(self, arguments: Arguments) -> None:
        """Raises PolicyError (through `arguments`) for values that it cannot use."""

    def execute(self, session: ActionView) -> None:
        """Plans; `session.units` is what waits, in order, and `session.place` gives some of it its turn."""
        raise NotImplementedError
