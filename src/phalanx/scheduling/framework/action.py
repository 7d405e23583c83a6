"""Interface of a third-party action: a class with one method that gets the session of a cycle."""

from __future__ import annotations

from typing import ClassVar

from phalanx.scheduling.framework.arguments import Arguments
from phalanx.scheduling.framework.view import ActionView


class Action:
    """A step of the cycle; the policy's `actions:` name it and its position.

    One instance exists as long as the policy that names it. An action stores no reference to the cluster between
    cycles and must be deterministic. Its decisions are made through the session, each as a whole or not at all. If
    it raises an exception, its decisions about gangs in this cycle are rolled back and the failure is reported
    under its name. The following actions still run, and the action is skipped for one minute.
    """

    name: ClassVar[str]
    arguments: ClassVar[tuple[str, ...]] = ()
    """Accepted argument keys under `configurations:`; a key that ends in `*` is a prefix."""

    def __init__(self, arguments: Arguments) -> None:
        """Create the action. Raise PolicyError (through `arguments`) for invalid values."""

    def execute(self, session: ActionView) -> None:
        """Plan the cycle: `session.units` are the waiting gangs and pods in order, `session.place` places those
        that it is given."""
        raise NotImplementedError
