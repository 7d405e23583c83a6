"""`python -m tests.soak [--steps N] [--seed N]`: run long lives, and write each failure as a short story.

`--replay FILE` runs such a story again. `--mutations` runs lives with each of ten bugs in the code, until one
finds it.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import msgspec

from .cluster import POLICIES
from .life import LIFE, live, objects_kept, read, relive, shrink, write
from .mutations.trial import MOST_STEPS, unnoticed

#: Allowed growth of memory between the first quarter and the end of a life, as the number of living objects
#: varies.
MOST_GROWTH = 1.5


def main() -> int:
    stated = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    stated.add_argument("--steps", type=int, default=200_000, help="steps in all")
    stated.add_argument("--life", type=int, default=LIFE, help="steps of each life")
    stated.add_argument("--seed", type=int, default=0, help="of the first life; each has the next one")
    stated.add_argument("--report", type=Path, default=Path(), help="where stories of faults are written")
    stated.add_argument("--replay", type=Path, help="a story to live again")
    stated.add_argument(
        "--mutations",
        nargs="?",
        const="",
        metavar="WORD",
        help="check that the soak finds bugs put into the code; with WORD those with this word in their name",
    )
    stated.add_argument("--unshrunk", action="store_true", help="write the stories of faults as they were drawn")
    stated.add_argument("--first", action="store_true", help="stop at the first fault, and do not shrink it")
    chosen = stated.parse_args()
    if chosen.mutations is not None:
        return 1 if unnoticed(min(chosen.steps, MOST_STEPS), chosen.seed, chosen.mutations) else 0
    if chosen.replay is not None:
        life = relive(read(chosen.replay))
        print(life.fault or "nothing goes wrong any more")
        return 1 if life.fault else 0
    return 1 if _run(chosen) else 0


def _run(chosen: argparse.Namespace) -> int:
    """Live all lives, write the stories of faults, and print a summary. Return the number of faults."""
    begun, grown, tallies = time.process_time(), [0, 0], {policy: Tally() for policy in POLICIES}
    for number in range(-(-chosen.steps // chosen.life)):
        seed, kept = chosen.seed + number, [0, 0]

        def done(step: int, kept: list[int] = kept, number: int = number) -> None:
            if sys.stderr.isatty() and step % 100 == 0:
                print(f"\rstep {number * chosen.life + step:,} of {chosen.steps:,}", end="", file=sys.stderr)
            if step in (chosen.life // 4, chosen.life - 1):
                kept[step == chosen.life - 1] = objects_kept()

        life = live(seed, min(chosen.life, chosen.steps - number * chosen.life), done)
        tally = tallies[life.story.policy]
        tally.lives += 1
        tally.steps += len(life.story.steps)
        tally.compared += life.cluster.compared
        if life.fault:
            tally.faults += 1
            found = f"seed {seed} ({life.story.policy}), step {len(life.story.steps)}: {life.fault}"
            path = chosen.report / f"soak-{seed}.jsonl"
            shown = life.story if chosen.first or chosen.unshrunk else shrink(life.story)
            write(shown, life.fault, path)
            print(f"{found}: {path}, {len(shown.steps)} steps", flush=True)
            if chosen.first:
                return 1
        elif chosen.life >= LIFE and all(kept) and kept[1] > kept[0] * MOST_GROWTH:
            tally.faults += 1
            print(f"seed {seed} ({life.story.policy}): {kept[0]:,} objects were kept, at the end {kept[1]:,}")
        grown = [sum(pair) for pair in zip(grown, kept, strict=True)]
    _print_summary(tallies, time.process_time() - begun, grown)
    return sum(tally.faults for tally in tallies.values())


class Tally(msgspec.Struct):
    """Numbers of the lives under one policy; `compared` are the steps after which the next process was compared."""

    lives: int = 0
    steps: int = 0
    compared: int = 0
    faults: int = 0


def _print_summary(tallies: dict[str, Tally], seconds: float, grown: list[int]) -> None:
    print(f"{'policy':<10}{'lives':>8}{'steps':>10}{'compared':>10}{'faults':>8}")
    for policy, tally in tallies.items():
        print(f"{policy:<10}{tally.lives:>8}{tally.steps:>10,}{tally.compared:>10,}{tally.faults:>8}")
    steps, faults = (sum(getattr(tally, name) for tally in tallies.values()) for name in ("steps", "faults"))
    growth = f"; objects kept {grown[1] / grown[0]:.2f} times those of the first quarter" if grown[0] else ""
    print(f"{steps:,} steps, {faults} faults; {steps / seconds:.0f} steps per CPU second{growth}")


if __name__ == "__main__":
    sys.exit(main())
