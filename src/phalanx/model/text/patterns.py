"""Regular expressions that others wrote, in Go's syntax (which is RE2's), by an engine that cannot backtrack.

Kubernetes compiles patterns of CustomResourceDefinitions and of rules, and Volcano those of HyperNodes, with Go's
package. The time that a match takes grows with the text and no faster, whatever the pattern.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache

import re2

# RE2's words for what is wrong, and Go's.
_WORDS = {
    "missing )": "missing closing )",
    "missing ]": "missing closing ]",
    "no argument for repetition operator": "missing argument to repetition operator",
    "bad repetition operator": "invalid nested repetition operator",
    "invalid repetition size": "invalid repeat count",
    "invalid perl operator": "invalid or unsupported Perl syntax",
    "invalid named capture group": "invalid named capture",
    "pattern too large": "expression too large",
}
# Bytes that one expression may take once compiled; classes of all scripts need several million.
_MEMORY = 2**25
_NAMED = re.compile(r"(?<!\\)\(\?P?<([A-Za-z0-9_]+)>")


class PatternError(ValueError):
    """The text is no regular expression; the message is the one of Go's regexp.Compile."""

    def __init__(self, problem: str, text: str) -> None:
        super().__init__(f"error parsing regexp: {problem}: `{text}`")


class Pattern:
    """One expression. It is searched for anywhere in a text."""

    def __init__(self, text: str) -> None:
        self._regexp = _compiled(text)
        # A set answers yes or no much faster than a search that tells where.
        self._set = _set_of((text,))

    def found_in(self, text: str) -> bool:
        return self.find(text) is not None if self._set is None else bool(self._set.Match(text))

    def find(self, text: str) -> str | None:
        """What is found first."""
        return next(self.find_all(text), None)

    def find_all(self, text: str) -> Iterator[str]:
        """What is found, from left to right."""
        for match in self._regexp.finditer(text):
            yield match.group()


class PatternSet:
    """Many expressions that are searched for at once. Raises PatternError."""

    def __init__(self, texts: Sequence[str]) -> None:
        self._patterns = [compile_pattern(text) for text in texts]
        self._set = _set_of(texts) if texts else None

    def found_in(self, text: str) -> list[int]:
        """The places of those that are found."""
        if self._set is not None:
            return self._set.Match(text) or []
        return [place for place, pattern in enumerate(self._patterns) if pattern.found_in(text)]


@lru_cache(maxsize=1024)
def compile_pattern(text: str) -> Pattern:
    """Raises PatternError."""
    return Pattern(text)


def _compiled(text: str) -> re2._Regexp:
    names = [match[0] for match in _NAMED.finditer(text)]
    twice = next((name for place, name in enumerate(names) if name in names[:place]), None)
    if twice is not None:
        raise PatternError("invalid named capture", twice)
    try:
        return re2.compile(text, _options())
    except re2.error as error:
        (said,) = error.args
        words = said.decode("utf-8", "replace") if isinstance(said, bytes) else str(said)
        if words.startswith("trailing \\"):
            raise PatternError("trailing backslash at end of expression", "") from None
        problem, _, part = words.partition(": ")
        if part.startswith(("(?<!", "(?<=")):
            problem, part = "invalid perl operator", "(?<"
        problem = next((word for known, word in _WORDS.items() if problem.startswith(known)), problem)
        raise PatternError(problem, part) from None


def _set_of(texts: Sequence[str]) -> re2.Set | None:
    """None where it would be too large."""
    found = re2.Set.SearchSet(_options())
    try:
        for text in texts:
            found.Add(text)
        found.Compile()
    except re2.error:
        return None
    return found


def _options() -> re2.Options:
    options = re2.Options()
    options.log_errors = False
    options.max_mem = _MEMORY
    return options
