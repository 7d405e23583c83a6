"""Script of a simulated pod, from its annotations: durations of start, run and stop, and the exit code."""

from __future__ import annotations

import msgspec

from phalanx.model.text.decoding import parse_float, parse_whole, quoted

START_SECONDS = "phalanx.dev/start-seconds"
RUN_SECONDS = "phalanx.dev/run-seconds"
TERMINATE_SECONDS = "phalanx.dev/terminate-seconds"
EXIT_CODE = "phalanx.dev/exit-code"
LOG = "phalanx.dev/log"


#: About thirty years: all computed times are valid dates.
MAX_SECONDS = 1e9


class ScriptError(ValueError):
    """Invalid annotation of a simulated pod; the text names the annotation."""


class Script(msgspec.Struct, frozen=True):
    """Durations of a simulated pod in seconds; `run` is None for a container that runs until it is stopped.

    `exit_code` is the exit code of a container at the end of its run time; a container that is stopped earlier
    ends like a process after SIGTERM (143).
    """

    start: float = 0.0
    run: float | None = None
    terminate: float = 0.1
    exit_code: int = 0


class ScriptDefaults(msgspec.Struct, frozen=True):
    """Durations from the agent's command line for simulated pods without annotations.

    `run` applies only to pods that are expected to end (restartPolicy Never or OnFailure): a service with a default
    run time would only restart in a loop.
    """

    start: float = 0.0
    run: float | None = None
    terminate: float = 0.1


def read_script(annotations: dict[str, str] | None, restart_policy: str, defaults: ScriptDefaults) -> Script:
    """Return the script of a simulated pod from its annotations. Raise ScriptError for an annotation that is no
    number or out of range."""
    notes = annotations or {}
    run = defaults.run if restart_policy in ("Never", "OnFailure") else None
    return Script(
        start=_seconds(notes, START_SECONDS, defaults.start),
        run=_seconds(notes, RUN_SECONDS, run) if RUN_SECONDS in notes else run,
        terminate=_seconds(notes, TERMINATE_SECONDS, defaults.terminate),
        exit_code=_exit_code(notes),
    )


def _seconds(notes: dict[str, str], name: str, default: float | None) -> float:
    text = notes.get(name)
    if text is None:
        return default or 0.0
    value = parse_float(text)
    if value is None or not 0 <= value <= MAX_SECONDS:
        raise ScriptError(f'annotation {name}: {quoted(text)} is not a number of seconds such as "30" or "0.5"')
    return value


def _exit_code(notes: dict[str, str]) -> int:
    text = notes.get(EXIT_CODE)
    if text is None:
        return 0
    code = parse_whole(text, 0, 255)
    if code is None:
        raise ScriptError(f"annotation {EXIT_CODE}: {quoted(text)} is not an exit code from 0 to 255")
    return code
