"""Random numbers from one stream per purpose, so that draws for one purpose do not change those of another."""

from __future__ import annotations

import random
from collections.abc import Mapping
from math import exp, log

from phalanx.model.text.decoding import quoted
from phalanx.simulation.errors import InputError
from phalanx.simulation.spans import seconds

# Upper bound in seconds of all draws: about 30 years.
_LONGEST = 10**9


def stream(seed: int, *purpose: str) -> random.Random:
    """Return a random stream for a purpose, identical for every policy."""
    return random.Random("/".join((str(seed), *purpose)))


class Distribution:
    """Distribution of a duration in whole seconds.

    A duration (`600`, `10m`); `{minimum: 10m, tailMean: 30m}`: at least the minimum, with an exponential tail;
    `{uniform: [10m, 1h]}`; `{median: 1h, sigma: 1.5}`: log-normal.
    """

    def __init__(self, value: object, place: str) -> None:
        """Parse the distribution. Raises InputError that names `place`."""
        self._place = place
        self._low = self._high = 0
        self._tail = self._sigma = 0.0
        if not isinstance(value, Mapping):
            self._kind, self._low = "fixed", seconds(value, place)
            return
        match sorted(value):
            case ["minimum"] | ["tailMean"] | ["minimum", "tailMean"]:
                self._kind = "tail"
                self._low = seconds(value.get("minimum", 0), f"{place}.minimum")
                self._tail = float(seconds(value.get("tailMean", 0), f"{place}.tailMean"))
            case ["uniform"]:
                self._kind = "uniform"
                ends = value["uniform"]
                if not isinstance(ends, list) or len(ends) != 2:
                    raise InputError(f"{place}.uniform is {quoted(ends)}; write two spans: [10m, 1h]")
                self._low, self._high = (seconds(end, f"{place}.uniform") for end in ends)
                if self._low > self._high:
                    raise InputError(f"{place}.uniform is {quoted(ends)}; write the shorter one first")
            case ["median", "sigma"]:
                self._kind = "lognormal"
                self._low, sigma = seconds(value["median"], f"{place}.median"), value["sigma"]
                if isinstance(sigma, bool) or not isinstance(sigma, int | float) or not 0 <= sigma <= 10:
                    raise InputError(f"{place}.sigma is {quoted(sigma)}; write a number from 0 to 10")
                if not self._low:
                    raise InputError(f"{place}.median is 0; write more than that")
                self._sigma = float(sigma)
            case keys:
                raise InputError(
                    f"{place} has the keys {', '.join(map(str, keys)) or 'none'}; write a span (10m), {{minimum,"
                    " tailMean}, {uniform: [10m, 1h]} or {median, sigma}"
                )

    @property
    def fixed(self) -> int | None:
        """The only value that is drawn; None for several values."""
        return self._low if self._kind == "fixed" else None

    def draw(self, source: random.Random) -> int:
        """Draw a duration in seconds."""
        match self._kind:
            case "tail":
                drawn = self._low + (source.expovariate(1 / self._tail) if self._tail else 0.0)
            case "uniform":
                drawn = source.randint(self._low, self._high)
            case "lognormal":
                drawn = exp(min(log(_LONGEST), source.gauss(log(self._low), self._sigma)))
            case _:
                drawn = self._low
        return min(_LONGEST, round(drawn))


def weighted(value: object, place: str) -> dict[int, int]:
    """Return numbers with weights: one number, or `{1: 70, 8: 30}`. Raises InputError."""
    if isinstance(value, Mapping) and value:
        weights = {}
        for number, weight in value.items():
            if not str(number).isdecimal() or int(number) < 1 or not _positive(weight):
                raise InputError(f"{place} is {quoted(dict(value))}; write numbers with weights: {{1: 70, 8: 30}}")
            weights[int(number)] = int(weight)
        return weights
    if _positive(value):
        assert isinstance(value, int)
        return {value: 1}
    raise InputError(
        f"{place} is {quoted(value)}; write a whole number from 1, or numbers with weights: {{1: 70, 8: 30}}"
    )


def _positive(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def span_or_factor(value: object, length: int | None, place: str) -> int:
    """Return a limit or an estimate in seconds, 0 for none; a factor multiplies the run time `length`.

    Raises InputError."""
    if value is None:
        return 0
    if isinstance(value, Mapping):
        factor = value.get("factor")
        if list(value) != ["factor"] or isinstance(factor, bool) or not isinstance(factor, int | float):
            raise InputError(
                f"{place} is {quoted(dict(value))}; write a span (2h), or {{factor: 2}} of the run time"
            )
        if not 0 < factor <= 10**6 or length is None:
            raise InputError(f"{place}.factor is {factor}; write a positive number, and a runTime")
        return max(1, round(length * factor))
    span = seconds(value, place)
    if not span:
        raise InputError(f"{place} is 0; write more than that, or leave it out")
    return span
