"""Whether things that wait for each other can ever begin."""

from __future__ import annotations

from collections.abc import Mapping, Sequence


def is_acyclic(waits_for: Mapping[str, Sequence[str]]) -> bool:
    """Whether all names can come one after the other. One that waits for a name that is not there never comes."""
    missing = {name: set(others) for name, others in waits_for.items()}
    followers: dict[str, list[str]] = {}
    for name, others in missing.items():
        for other in others:
            followers.setdefault(other, []).append(name)
    ready = [name for name, others in missing.items() if not others]
    come = 0
    while ready:
        done = ready.pop()
        come += 1
        for name in followers.get(done, ()):
            missing[name].discard(done)
            if not missing[name]:
                ready.append(name)
    return come == len(missing)
