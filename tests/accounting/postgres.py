"""A PostgreSQL of our own, in a directory of its own, reached over a socket there."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from pathlib import Path

_USER = "phalanx"
# Nothing of it has to survive.
_SETTINGS = ("listen_addresses=", "fsync=off", "synchronous_commit=off", "full_page_writes=off")


def binaries() -> Path | None:
    """Return the folders with initdb and pg_ctl on Debian or in the path, newest first."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda file: int(file.parts[-3]))
    if found:
        return found[-1].parent
    there = shutil.which("initdb")
    return Path(there).parent if there else None


class Postgres:
    """`url` is that of a database's name; a server refuses to run as root, so another account is taken there."""

    def __init__(self, programs: Path) -> None:
        self._programs = programs
        self._directory = Path(tempfile.mkdtemp(prefix="phalanx-pg-"))
        self._account = _account() if os.geteuid() == 0 else None
        if self._account is not None:
            os.chown(self._directory, self._account.pw_uid, self._account.pw_gid)
        data = self._directory / "data"
        self._run("initdb", "-D", data, "-U", _USER, "-A", "trust", "-E", "UTF8", "--no-sync", "--wal-segsize=1")
        self._numbers = 0
        self.start()

    def start(self) -> None:
        settings = " ".join(f"-c {each}" for each in (*_SETTINGS, f"unix_socket_directories={self._directory}"))
        data, log = self._directory / "data", self._directory / "log"
        self._run("pg_ctl", "-D", data, "-l", log, "-o", settings, "-w", "-t", "60", "start")

    def new_url(self) -> str:
        """Return the URL of a new, empty database."""
        self._numbers += 1
        name = f"accounts{self._numbers}"
        self._run("createdb", "-h", self._directory, "-U", _USER, name)
        return f"postgresql://{_USER}@/{name}?host={self._directory}"

    def stop(self, mode: str = "fast") -> None:
        self._run("pg_ctl", "-D", self._directory / "data", "-m", mode, "-w", "stop")

    def remove(self) -> None:
        self.stop("immediate")
        shutil.rmtree(self._directory)

    def _run(self, program: str, *arguments: str | Path) -> None:
        account = self._account
        done = subprocess.run(
            [self._programs / program, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE if program != "pg_ctl" else subprocess.DEVNULL,
            stderr=subprocess.STDOUT if program != "pg_ctl" else subprocess.DEVNULL,
            cwd=self._directory,
            user=account.pw_uid if account is not None else None,
            group=account.pw_gid if account is not None else None,
            extra_groups=[] if account is not None else None,
            env={"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8"},
            check=False,
        )
        log = self._directory / "log"
        told = (done.stdout or b"").decode() or (log.read_text() if log.exists() else "")
        assert done.returncode == 0, f"{program}: {told}"


def _account() -> pwd.struct_passwd:
    for name in ("postgres", "nobody"):
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    raise AssertionError("no account to run PostgreSQL as")
