"""Regular expressions from other programs, in Go's syntax (RE2), with an engine that cannot backtrack.

Kubernetes compiles patterns of CustomResourceDefinitions and rules, and Volcano those of HyperNodes, with Go's
regexp package. The time of a match is linear in the text, for any pattern.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache

import re2

# Error messages of RE2, and the corresponding ones of Go.
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
# Maximum size of a compiled expression in bytes; classes of all scripts need several million.
_MEMORY = 2**25
_NAMED = re.compile(r"(?<!\\)\(\?P?<([A-Za-z0-9_]+)>")


class PatternError(ValueError):
    """Invalid regular expression; the message is that of Go's regexp.Compile."""

    def __init__(self, problem: str, text: str) -> None:
        super().__init__(f"error parsing regexp: {problem}: `{text}`")


class Pattern:
    """Compiled regular expression, searched for anywhere in a text."""

    def __init__(self, text: str) -> None:
        self._regexp = _compiled(text)
        # A set answers yes or no much faster than a search with positions.
        self._set = _set_of((text,))

    def found_in(self, text: str) -> bool:
        return self.find(text) is not None if self._set is None else bool(self._set.Match(text))

    def find(self, text: str) -> str | None:
        """Return the first match of the expression in a text; None if there is none."""
        return next(self.find_all(text), None)

    def find_all(self, text: str) -> Iterator[str]:
        """Yield the matches of the expression from left to right."""
        for match in self._regexp.finditer(text):
            yield match.group()


class PatternSet:
    """Set of regular expressions that are searched for at the same time. Raises PatternError."""

    def __init__(self, texts: Sequence[str]) -> None:
        self._patterns = [compile_pattern(text) for text in texts]
        self._set = _set_of(texts) if texts else None

    def found_in(self, text: str) -> list[int]:
        """Return the indexes of the expressions that match somewhere in the text."""
        if self._set is not None:
            return self._set.Match(text) or []
        return [place for place, pattern in enumerate(self._patterns) if pattern.found_in(text)]


@lru_cache(maxsize=1024)
def compile_pattern(text: str) -> Pattern:
    """Compile a regular expression. Raise PatternError if it is invalid."""
    return Pattern(text)


def _compiled(text: str) -> re2._Regexp:
    names = [match[0] for match in _NAMED.finditer(text)]
    twice = next((name for place, name in enumerate(names) if name in names[:place]), None)
    if twice is not None:
        raise PatternError("invalid named capture", twice)
    try:
        return re2.compile(text, _options())
    except re2.error as error:
        (message,) = error.args
        words = message.decode("utf-8", "replace") if isinstance(message, bytes) else str(message)
        if words.startswith("trailing \\"):
            raise PatternError("trailing backslash at end of expression", "") from None
        problem, _, part = words.partition(": ")
        if part.startswith(("(?<!", "(?<=")):
            problem, part = "invalid perl operator", "(?<"
        problem = next((word for known, word in _WORDS.items() if problem.startswith(known)), problem)
        raise PatternError(problem, part) from None


def _set_of(texts: Sequence[str]) -> re2.Set | None:
    """Compile a set of regular expressions; return None if it would be too large."""
    pattern_set = re2.Set.SearchSet(_options())
    try:
        for text in texts:
            pattern_set.Add(text)
        pattern_set.Compile()
    except re2.error:
        return None
    return pattern_set


def _options() -> re2.Options:
    options = re2.Options()
    options.log_errors = False
    options.max_mem = _MEMORY
    return options
