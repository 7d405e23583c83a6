"""Bytecode for child processes, on machines that forbid to write it."""

from __future__ import annotations

import os
import sys
from pathlib import Path

_ROOT = Path(__file__).parent.parent


def cache_bytecode() -> None:
    """Let this process and its children write bytecode below `build/` where PYTHONDONTWRITEBYTECODE is set.

    The variable prevents `__pycache__` in the sources, as many build machines want. Without bytecode each child
    process of a test compiles our sources again, which needs a second of CPU.
    """
    if not sys.dont_write_bytecode:
        return
    prefix = _ROOT / "build" / "bytecode"
    try:
        prefix.mkdir(parents=True, exist_ok=True)
    except OSError:
        return
    if not os.access(prefix, os.W_OK):
        return
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    os.environ["PYTHONPYCACHEPREFIX"] = str(prefix)
    sys.dont_write_bytecode = False
    sys.pycache_prefix = str(prefix)
