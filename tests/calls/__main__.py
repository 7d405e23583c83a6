"""Rewrite the table of function calls for this Python: `python -m tests.calls`."""

from __future__ import annotations

from tests.calls.table import VERSION, write_table


def main() -> None:
    print(f"{'calls per pod, Python ' + VERSION:45} {'before':>8} {'now':>8}")
    for name, (before, now) in write_table().items():
        print(f"{name:45} {before if before is not None else '-':>8} {now:8.1f}")


if __name__ == "__main__":
    main()
