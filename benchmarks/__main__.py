"""`python -m benchmarks`: all that can be measured here, in one table; exit code 1 if a promise is broken."""

from __future__ import annotations

import subprocess
import sys
from itertools import chain

from benchmarks import bench_accounts, bench_eviction, bench_planning, bench_refusal
from benchmarks.report import show

# These start servers or fill databases, and print figures of their own.
OTHERS = ("benchmarks.bench_end_to_end", "benchmarks.bench_transport", "benchmarks.bench_accounting")


def main() -> int:
    kept = show(chain(bench_planning.rows(), bench_accounts.rows(), bench_refusal.rows(), bench_eviction.rows()))
    for module in OTHERS:
        print(f"\n{module}", flush=True)
        kept = subprocess.run([sys.executable, "-m", module], check=False).returncode == 0 and kept
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
