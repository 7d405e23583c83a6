"""Pictures of the terminal, as SVG: commands through a pseudo-terminal, and `phalanx top` as it draws itself."""

from __future__ import annotations

import fcntl
import io
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import TerminalTheme
from rich.text import Text

import phalanx
from phalanx.cli.top.feed import following
from phalanx.dashboard.watch import WatchOptions
from tests.pictures.world import SeededCluster
from tests.top.screen import opened

TERMINALS = ("terminal.svg", "top.svg")
COLUMNS, ROWS = 150, 40
# Colours of the page's dark side; the visible ones of the sixteen have enough contrast on its background.
_THEME = TerminalTheme(
    (18, 20, 28),
    (222, 226, 235),
    [(18, 20, 28), (240, 113, 120), (98, 205, 142), (229, 181, 103),
     (130, 160, 255), (199, 146, 234), (110, 205, 220), (222, 226, 235)],
    [(105, 112, 130), (255, 140, 145), (125, 225, 165), (245, 205, 130),
     (155, 180, 255), (215, 170, 245), (140, 225, 235), (255, 255, 255)],
)  # fmt: skip
# Rich's own frame names a font of another host; a picture is complete without.
_FONT_FACE = re.compile(r"@font-face\s*\{[^}]*\}")


def recorded(command: str, environment: dict[str, str], directory: Path) -> str:
    """Return the output of `phalanx ...` on a terminal of our size in this directory, escapes included."""
    _, *words = command.split()
    ours, theirs = pty.openpty()
    try:
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
        with subprocess.Popen(
            [sys.executable, "-m", "phalanx.cli", *words],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env=environment,
            cwd=directory,
        ) as process:
            os.close(theirs)
            theirs = -1
            written = bytearray()
            while True:
                try:
                    part = os.read(ours, 65536)
                except OSError:  # as Linux says that the other end is closed
                    break
                if not part:
                    break
                written += part
        if process.returncode:
            raise RuntimeError(f"{command}: {written.decode()}")
    finally:
        os.close(ours)
        if theirs >= 0:
            os.close(theirs)
    return written.decode().replace("\r\n", "\n")


def picture(sessions: list[tuple[str, str]], title: str) -> str:
    """Return an SVG of commands and their output."""
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True, color_system="truecolor")
    for place, (command, printed) in enumerate(sessions):
        if place:
            console.print()
        console.print(Text.assemble(("$ ", "bold green"), (command, "bold")))
        console.print(Text.from_ansi(printed.rstrip()))
    return stripped(console.export_svg(title=title, theme=_THEME, unique_id="phalanx"))


def stripped(svg: str) -> str:
    """Without fonts of other hosts."""
    return _FONT_FACE.sub("", svg).replace("Fira Code,", "ui-monospace, Menlo, Consolas,")


async def record(world: SeededCluster, directory: Path) -> list[Path]:
    """Writes the pictures of the terminal; gives their files."""
    environment = {**os.environ, "KUBECONFIG": str(world.kubeconfig), "TERM": "xterm-256color"}
    environment["PYTHONPATH"] = str(Path(phalanx.__file__).parents[1])
    config = Path(world.policy)
    sessions = [
        (command, recorded(command, environment, config.parent))
        for command in (
            "phalanx jobs -n vision",
            f"phalanx why podgroup/detr-large -n vision --config {config.name}",
            f"phalanx queue tree --config {config.name}",
        )
    ]
    commands, top = (directory / name for name in TERMINALS)
    commands.write_text(picture(sessions, "phalanx"), "utf-8")
    async with (
        following(world.client, WatchOptions(config=world.policy)) as (feed, _),
        opened(feed, size=(COLUMNS, 18)) as screen,
    ):
        await screen.shows("asr-sweep")
        await screen.until(lambda: not screen.line("no verdicts yet"), "verdicts")
        top.write_text(stripped(screen.app.export_screenshot(title="phalanx top", simplify=True)), "utf-8")
    return [commands, top]
