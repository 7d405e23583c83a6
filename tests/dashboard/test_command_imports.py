"""Lists import no scheduler and no large library: they would take longer to start than to answer."""

from __future__ import annotations

import asyncio
import json
import os
import sys

import pytest

from phalanx.kube.auth.config import SERVER_EXTENSION, with_extension
from tests.dashboard.cluster import Page, Site
from tests.dashboard.test_command_answers import Tenant, publish

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.e2e]

HEAVY = ("numpy", "aiohttp", "cryptography", "sqlalchemy", "textual", "rich", "phalanx.scheduling")
_RUN = """
import sys
from phalanx.cli.main import cli
try:
    cli.main(sys.argv[1:], standalone_mode=False)
finally:
    print("modules:", *sys.modules, file=sys.stderr)
"""


async def modules_of(kubeconfig: object, *words: str) -> set[str]:
    """Return the names of all modules that a command imports until its end."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", _RUN, *words),
        env={**os.environ, "KUBECONFIG": str(kubeconfig)},
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    _, errors = await process.communicate()
    assert process.returncode == 0, errors.decode()
    return set(errors.decode().rpartition("modules:")[2].split())


def check(modules: set[str], most: int, allowed: tuple[str, ...] = ()) -> None:
    """Check that no heavy module is imported, and at most `most` of ours."""
    for heavy in set(HEAVY) - set(allowed):
        assert not {name for name in modules if name == heavy or name.startswith(f"{heavy}.")}
    assert sum(name.startswith("phalanx") for name in modules) <= most


@pytest.mark.parametrize(
    ("words", "most"),
    [
        (("--help",), 10),
        (("jobs", "--help"), 40),
        (("jobs", "-A"), 280),
        (("job", "list"), 250),
        (("reservations",), 210),
        (("clusters",), 60),
    ],
)
async def test_list_of_an_administrator_imports_no_scheduler(site: Site, words: tuple[str, ...], most: int) -> None:
    check(await modules_of(site.directory / "kubeconfig", *words), most)


async def test_list_of_nodes_imports_arrays_but_no_scheduler(site: Site) -> None:
    # Free room is computed on the arrays of the cluster state, as the scheduler does.
    check(await modules_of(site.directory / "kubeconfig", "nodes"), 360, allowed=("numpy",))


@pytest.mark.parametrize(
    ("words", "most"),
    [
        (("why", "impossible"), 200),
        (("order",), 90),
        (("jobs", "--start"), 90),
        (("queue", "tree"), 90),
        (("nodes",), 90),
        (("jobs", "-A", "--server"), 90),
    ],
)
async def test_question_to_the_server_imports_no_scheduler(
    site: Site, shared: Page, words: tuple[str, ...], most: int
) -> None:
    await publish(site, shared.url)
    url = [shared.url] if words[-1] == "--server" else []
    check(await modules_of(Tenant(site, "ours").file, *words, *url), most)


@pytest.mark.parametrize(
    ("words", "most"),
    [
        (("why", "impossible"), 200),
        (("order",), 90),
        (("jobs", "--start"), 90),
        (("queue", "list"), 100),
        (("queue", "tree"), 100),
        (("quota", "list"), 100),
        (("nodes",), 90),
    ],
)
async def test_administrator_whose_kubeconfig_names_a_server_imports_no_scheduler(
    site: Site, shared: Page, words: tuple[str, ...], most: int
) -> None:
    file = site.directory / "named-server.kubeconfig"
    config = with_extension(site.server.kubeconfig(), SERVER_EXTENSION, {"url": shared.url})
    config["contexts"][0]["context"]["namespace"] = "ours"
    file.write_text(json.dumps(config))
    check(await modules_of(file, *words), most)
