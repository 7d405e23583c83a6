"""Check for cycles in dependency graphs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence


def is_acyclic(waits_for: Mapping[str, Sequence[str]]) -> bool:
    """Return whether all names can be ordered by their dependencies, without a cycle; False also if a dependency is
    missing."""
    missing = {name: set(dependencies) for name, dependencies in waits_for.items()}
    followers: dict[str, list[str]] = {}
    for name, dependencies in missing.items():
        for dependency in dependencies:
            followers.setdefault(dependency, []).append(name)
    ready = [name for name, dependencies in missing.items() if not dependencies]
    ordered = 0
    while ready:
        done = ready.pop()
        ordered += 1
        for name in followers.get(done, ()):
            missing[name].discard(done)
            if not missing[name]:
                ready.append(name)
    return ordered == len(missing)
