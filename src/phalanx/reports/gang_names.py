"""Which gang is meant by a name: as its object is called, as lists show it, or as its owner is called."""

from __future__ import annotations

from collections.abc import Iterable

from phalanx.model.gang import GangKey, owner_of_name, shown_name

# How gangs of these kinds begin where that is not the kind in small letters.
_PREFIXES = {"leaderworkerset": "lws"}


class AmbiguousGangError(ValueError):
    """Several owners have one name; the message tells them apart."""


def gangs_called(keys: Iterable[GangKey], namespace: str, name: str, kind: str = "") -> list[GangKey]:
    """The gangs that are meant: one, or all that one owner starts, sorted; none where there are none of that name.

    `kind` is that of the owner in small letters, "" for any. The name of an object holds before all others. Raises
    AmbiguousGangError.
    """
    there = [key for key in keys if key.namespace == namespace]
    if not kind and (exact := [key for key in there if key.name == name]):
        return exact
    prefix = _PREFIXES.get(kind, kind)
    owned = [key for key in there if (owner := owner_of_name(key.name))[0] and prefix in ("", owner[0])]
    found = sorted(key for key in owned if shown_name(key.name) == name)
    found = found or sorted(key for key in owned if owner_of_name(key.name)[1] == name)
    # An owner that was made anew has its name, but not its uid: the gang of the one before may still be there.
    kinds = sorted({owner_of_name(key.name)[0] for key in found})
    if len(kinds) > 1:
        told = ", ".join(f"{each}/{name}" for each in kinds)
        raise AmbiguousGangError(f"{len(kinds)} gangs are called {name!r} in namespace {namespace!r}: say {told}")
    return found
