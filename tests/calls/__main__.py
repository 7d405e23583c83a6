"""Rewrite the table of function calls for this Python: `python -m tests.calls`; `--print` prints it as JSON."""

from __future__ import annotations

import argparse
import json

from tests.calls.table import VERSION, counted_here, write_table


def main() -> None:
    stated = argparse.ArgumentParser(prog="python -m tests.calls", description=__doc__)
    stated.add_argument("--print", action="store_true", help="print the counts as JSON, and rewrite nothing")
    if stated.parse_args().print:
        print(json.dumps(counted_here()))
        return
    print(f"{'calls per pod, Python ' + VERSION:45} {'before':>8} {'now':>8}")
    for name, (before, now) in write_table().items():
        print(f"{name:45} {before if before is not None else '-':>8} {now:8.1f}")


if __name__ == "__main__":
    main()
