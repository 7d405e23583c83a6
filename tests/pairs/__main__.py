"""`python -m tests.pairs [WORD …]`: play the pairs whose titles contain the words, and print each outcome."""

from __future__ import annotations

import sys

from .story import Story
from .table import APART, PAIRS, title


def main(words: list[str]) -> int:
    faults = 0
    for pair in PAIRS:
        if not all(word in title(pair) for word in words):
            continue
        if pair in APART:
            print(f"{title(pair)}: cannot meet: {APART[pair]}")
            continue
        for first, second in (pair, pair[::-1]):
            try:
                print(f"{title((first, second))}: {Story(first(), second()).play()}")
            except AssertionError as fault:
                faults += 1
                print(f"{title((first, second))}: FAULT: {fault}")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
