"""Brings the logs that published results rest on into a folder: `python -m benchmarks.traces FOLDER`.

Tests look for them in the folder that PHALANX_TRACES names. Nothing of them belongs into this repository: the
archive asks to acknowledge L. Malinowsky (PDC/KTH) and D. Feitelson where results of KTH's log are shown; the openb
trace (Alibaba) is under the Apache licence 2.0.
"""

from __future__ import annotations

import hashlib
import os
import sys
import urllib.request
from pathlib import Path

_PREDICTSIM = "https://raw.githubusercontent.com/jad-darrous/predictsim/HEAD/"
_OPENB = "https://raw.githubusercontent.com/hkust-adsl/kubernetes-scheduler-simulator/HEAD/data/csv/"
# file -> (where it is, its SHA-256)
LOGS = {
    "KTH-SP2_log.swf": (
        _PREDICTSIM + "simulation/pyss/src/jad/logs/KTH-SP2_log.swf",
        "b9e3ac3fd1099d735d3be36253d3d9af447ecc74af71037600a3a858e9f8901b",
    ),
    "openb_node_list_all_node.csv": (
        _OPENB + "openb_node_list_all_node.csv",
        "5a85c2af79c66a1efff8bbcbda430400aae56d8431370d738480967e1a9c6b15",
    ),
    "openb_pod_list_default.csv": (
        _OPENB + "openb_pod_list_default.csv",
        "1ee7ed79c27a3b0861cda8ddba86a004c6aba904caafa329a76ae93ca63834a8",
    ),
}
# Where they are looked for besides.
_BESIDE = Path(__file__).parents[2] / "shared/data/openb"


def found(name: str) -> Path | None:
    """The file where it is at hand: in the folder that PHALANX_TRACES names, or in the shared data beside the
    repository."""
    folders = [Path(folder) for folder in (os.environ.get("PHALANX_TRACES"),) if folder] + [_BESIDE]
    return next((folder / name for folder in folders if is_whole(folder / name, LOGS[name][1])), None)


def is_whole(path: Path, digest: str) -> bool:
    return path.exists() and hashlib.sha256(path.read_bytes()).hexdigest() == digest


def bring(folder: Path) -> None:
    """Fetches what is not there yet. Raises OSError, and ValueError for a file that is another one."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, (address, digest) in LOGS.items():
        path = folder / name
        if not is_whole(path, digest):
            with urllib.request.urlopen(address, timeout=60) as answer:
                path.write_bytes(answer.read())
        if not is_whole(path, digest):
            raise ValueError(f"{path} is not the file that the published results are about (SHA-256 {digest})")
        print(path)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python -m benchmarks.traces FOLDER")
    bring(Path(sys.argv[1]))
