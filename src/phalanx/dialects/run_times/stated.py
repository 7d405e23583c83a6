"""Run times that annotations of pods and PodGroups state."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from phalanx.dialects.lenient import DecodingFault
from phalanx.dialects.times import parse_duration
from phalanx.model.run_time import NOTHING_STATED, StatedRunTime
from phalanx.model.text.decoding import quoted

MAX_RUN_TIME = "phalanx.dev/max-run-time"
COLLECT_AFTER = "phalanx.dev/collect-after"
EXPECTED_RUN_TIME = "phalanx.dev/expected-run-time"
KAI_EXPECTED = "kai.scheduler/expected-runtime"
# Written by our controller on the pods of a Volcano Job: the Job's spec.runningEstimate.
RUNNING_ESTIMATE = "phalanx.dev/job-running-estimate"
SLURM_TIME_LIMIT = "slurmjob.slinky.slurm.net/timelimit"

KEYS = frozenset((MAX_RUN_TIME, EXPECTED_RUN_TIME, KAI_EXPECTED, RUNNING_ESTIMATE, SLURM_TIME_LIMIT))

#: The longest plausible run time: 100 years.
_LONGEST = 100 * 366 * 24 * 3600


def parse_run_time(text: str) -> int:
    """Parse a run time into seconds of at least 1. Raise ValueError with advice."""
    try:
        seconds = parse_duration(text.strip())
    except ValueError:
        seconds = 0
    if not 0 < seconds <= _LONGEST:
        raise ValueError("write a duration above 0, such as 90m or 36h; the value is ignored")
    return seconds


def parse_collect_after(text: str) -> int:
    """Parse the time after which a waiting gang collects room into seconds; -1 for `never`. Raise ValueError with
    advice."""
    if text.strip() == "never":
        return -1
    try:
        return parse_run_time(text)
    except ValueError:
        raise ValueError("write a duration above 0, such as 10m or 2h, or never; the value is ignored") from None


def parse_slurm_minutes(text: str) -> int:
    """Parse a Slurm time limit in whole minutes into seconds; 0 means no limit. Raise ValueError with advice."""
    text = text.strip()
    if not (text.isascii() and text.isdecimal() and int(text[:10]) * 60 <= _LONGEST):
        raise ValueError('write whole minutes, such as "90"; the value is ignored')
    return int(text[:10]) * 60


# In order of precedence, with the name of each source in messages and answers.
_ESTIMATES: tuple[tuple[str, str, Callable[[str], int]], ...] = (
    (EXPECTED_RUN_TIME, f"annotation {EXPECTED_RUN_TIME}", parse_run_time),
    (KAI_EXPECTED, f"annotation {KAI_EXPECTED}", parse_run_time),
    (RUNNING_ESTIMATE, "the Job's spec.runningEstimate", parse_run_time),
    (SLURM_TIME_LIMIT, f"annotation {SLURM_TIME_LIMIT}", parse_slurm_minutes),
)


def stated_run_time(annotations: Mapping[str, str], faults: list[DecodingFault], about: str = "") -> StatedRunTime:
    """Read run times from annotations; unreadable ones are added to `faults`, and the next source is used.

    `about` names the object in the sources, "" for the pod itself.
    """
    if KEYS.isdisjoint(annotations):
        return NOTHING_STATED
    prefix = f"{about}: " if about else ""
    allowed = _read(annotations, MAX_RUN_TIME, parse_run_time, faults)
    estimates = [
        (seconds, rank, source)
        for rank, (key, source, parse) in enumerate(_ESTIMATES)
        if (seconds := _read(annotations, key, parse, faults))
    ]
    seconds, rank, source = estimates[0] if estimates else (0, 0, "")
    return StatedRunTime(
        allowed,
        f"{prefix}annotation {MAX_RUN_TIME}" if allowed else "",
        seconds,
        prefix + source if seconds else "",
        rank,
    )


def _read(
    annotations: Mapping[str, str], key: str, parse: Callable[[str], int], faults: list[DecodingFault]
) -> int:
    text = annotations.get(key, "")
    if not text:
        return 0
    try:
        return parse(text)
    except ValueError as error:
        faults.append(DecodingFault(f"metadata.annotations[{key}]", f"{quoted(text)}: {error}"))
        return 0
