"""Errors about unknown keys of a policy file."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence

from phalanx.model.text.decoding import quoted


def check_keys(mapping: Mapping[str, object], known: Sequence[str], prefix: str, errors: list[str]) -> None:
    """Add an error for each key of `mapping` that is not in `known`; `prefix` is the place of the mapping."""
    errors.extend(f"{prefix}{key}: unknown key{suggestion(str(key), known)}" for key in mapping if key not in known)


def suggestion(word: str, known: Iterable[str]) -> str:
    """Return the end of an error about an unknown word: the known word that resembles it, if any."""
    close = difflib.get_close_matches(word, list(known), n=1)
    return f"; did you mean {quoted(close[0])}?" if close else ""
