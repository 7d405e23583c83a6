"""`phalanx top` as a process on a terminal, and its messages where it cannot run."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import pty
import signal
import struct
import sys
import termios
from collections.abc import AsyncIterator, Callable

import pytest
from click.testing import CliRunner

from phalanx.cli.main import cli
from tests.dashboard.cluster import PATIENCE, Site, until

pytestmark = pytest.mark.e2e

_LEFT = b"\x1b[?1049l"


class Terminal:
    """A real one, as the kernel has it, with the command on it."""

    def __init__(self, process: asyncio.subprocess.Process, number: int) -> None:
        self.process = process
        self._number = number
        self.output = bytearray()
        asyncio.get_running_loop().add_reader(number, self._read)

    def _read(self) -> None:
        try:
            data = os.read(self._number, 65_536)
        except OSError:  # the other side is closed
            data = b""
        if not data:
            asyncio.get_running_loop().remove_reader(self._number)
        self.output += data

    def type(self, keys: bytes) -> None:
        os.write(self._number, keys)

    def resize(self, columns: int, lines: int) -> None:
        fcntl.ioctl(self._number, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        self.process.send_signal(signal.SIGWINCH)

    async def until(self, holds: Callable[[], object], what: str) -> None:
        try:
            await until(holds, what)
        except AssertionError as error:
            raise AssertionError(f"{error}: {bytes(self.output[-3000:])!r}") from error

    async def shows(self, text: str) -> None:
        await self.until(lambda: text.encode() in self.output, text)

    async def ended(self) -> int:
        async with asyncio.timeout(PATIENCE):
            return await self.process.wait()


@contextlib.asynccontextmanager
async def terminal(site: Site, *arguments: str) -> AsyncIterator[Terminal]:
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 140, 0, 0))
    # Textual's tests without a terminal leave their size there.
    environment = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
    environment |= {"TERM": "xterm-256color", "KUBECONFIG": str(site.directory / "kubeconfig")}
    command = (sys.executable, "-m", "phalanx.cli", "top", *arguments)
    process = await asyncio.create_subprocess_exec(
        *command, stdin=slave, stdout=slave, stderr=slave, env=environment, start_new_session=True
    )
    os.close(slave)
    made = Terminal(process, master)
    try:
        yield made
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
        asyncio.get_running_loop().remove_reader(master)
        os.close(master)


@pytest.mark.asyncio(loop_scope="session")
async def test_on_a_terminal_it_shows_gangs_follows_its_size_and_leaves_the_screen_as_it_was(site: Site) -> None:
    async with terminal(site, "-n", "ours") as shown:
        await shown.shows("impossible")
        await shown.shows("NotEnoughResources")
        assert b"covert-train" not in shown.output
        shown.output.clear()
        shown.resize(70, 20)
        await shown.shows("impossible")
        shown.type(b":nodes\r")
        await shown.shows("RACK")
        shown.type(b"q")
        assert await shown.ended() == 0
        await shown.until(lambda: _LEFT in shown.output, "the former screen")
        # Nothing asks for the mouse.
        assert b"\x1b[?1000h" not in shown.output


@pytest.mark.asyncio(loop_scope="session")
async def test_top_ended_by_a_signal_restores_the_screen(site: Site) -> None:
    async with terminal(site, "nodes") as shown:
        # Nodes are drawn before the first rehearsal has ended.
        await shown.shows("RACK")
        shown.process.send_signal(signal.SIGTERM)
        assert await shown.ended() == 0
        await shown.until(lambda: _LEFT in shown.output, "the former screen")


@pytest.mark.asyncio(loop_scope="session")
async def test_without_an_api_server_it_says_so_in_one_line(site: Site) -> None:
    async with terminal(site, "--cluster", "nobody") as shown:
        assert await shown.ended() == 1
        await shown.shows("Error: ")
        assert b"Traceback" not in shown.output
        assert b"\x1b[?1049h" not in shown.output


def test_top_without_a_terminal_names_the_commands_that_print_lists() -> None:
    result = CliRunner().invoke(cli, ["top"])
    assert result.exit_code == 1
    assert result.output == (
        "Error: phalanx top needs a terminal; to print lists: phalanx jobs, phalanx nodes, phalanx queue list\n"
    )


def test_top_without_the_extra_names_the_package_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "textual", None)
    result = CliRunner().invoke(cli, ["top"])
    assert (result.exit_code, result.output) == (
        1,
        "Error: `phalanx top` needs the terminal interface: pip install 'phalanx-scheduler[tui]'\n",
    )


def test_its_help_needs_no_terminal_and_says_the_flags_of_every_command() -> None:
    result = CliRunner().invoke(cli, ["top", "--help"])
    assert result.exit_code == 0
    for flag in ("--kubeconfig", "--context", "--namespace", "--config", "--scheduler-name"):
        assert flag in result.output
