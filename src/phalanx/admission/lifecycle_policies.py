"""Admission rules for the lifecycle policies of a job or a task: valid events, exit codes, actions and their
combinations."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from phalanx.jobs.spec import JobAction, JobEvent, LifecyclePolicy
from phalanx.model.text.duration import parse_nanoseconds

_EVENTS = tuple(event.value for event in JobEvent)
_ACTIONS = tuple(action.value for action in JobAction)
_CHOICES = f"valid events are [{' '.join(_EVENTS)}], valid actions are [{' '.join(_ACTIONS)}];"


def refusals_of_policies(policies: Sequence[LifecyclePolicy], path: str) -> list[str]:
    """Return at most one refusal of lifecycle policies: the first fault and the allowed words (internal events are
    not allowed)."""
    faults: list[str] = []
    events: set[str] = set()
    codes: set[int] = set()
    for policy in policies:
        faults += _faults(policy, path, events, codes)
        if faults:
            break
    if JobEvent.ANY in events and len(events) > 1:
        faults.append("if there's * here, no other policy should be here")
    return [f"{'; '.join(faults)}; {_CHOICES}"] if faults else []


def _faults(policy: LifecyclePolicy, path: str, events: set[str], codes: set[int]) -> Iterable[str]:
    named, code = policy.all_events(), policy.exit_code
    if named and code is not None:
        return ["must not specify event and exitCode simultaneously"]
    if not named and code is None:
        return ["either event and exitCode should be specified"]
    if policy.action not in _ACTIONS:
        return [f'{path}: Invalid value: "{policy.action}": invalid policy action']
    if policy.timeout:
        try:
            parse_nanoseconds(policy.timeout)
        except ValueError as error:
            return [f'{path}.timeout: Invalid value: "{policy.timeout}": {error}']
    if code is not None:
        if code == 0:
            return ["0 is not a valid error code"]
        if code in codes:
            return [f"duplicate exitCode {code}"]
        codes.add(code)
        return []
    for event in named:
        if event not in _EVENTS:
            return [f'{path}: Invalid value: "{event}": invalid policy event']
        if event in events:
            return [f"duplicate event {event}  across different policy"]
        events.add(event)
    return []
