"""Containers that really run, as local processes."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from .pods import container, manifest
from .world import PATIENCE, PODS, World, condition

pytestmark = [pytest.mark.e2e, pytest.mark.skipif(sys.platform != "linux", reason="needs all of 127.0.0.0/8")]

NODES = "[{name: n0, allocatable: {cpu: 8, memory: 16Gi}}, {name: n1, allocatable: {cpu: 8, memory: 16Gi}}]"

COMMAND = [sys.executable, "-m", "phalanx.cli", "node-agent"]

# The program of every member: rank 0 listens on its own address, every other rank reads it from the hosts
# file, and all wait until the gang is complete.
BARRIER = """
import os, socket, time
rank, size = int(os.environ["RANK"]), int(os.environ["SIZE"])

def leader():
    while True:
        for line in open(os.environ["PHALANX_HOSTS"]) if os.path.exists(os.environ["PHALANX_HOSTS"]) else ():
            address, *names = line.split()
            if "ring-0" in names:
                return address
        time.sleep(0.02)

if rank == 0:
    with socket.create_server((os.environ["POD_IP"], 29500)) as server:
        others = [server.accept()[0] for _ in range(size - 1)]
        ranks = sorted(int(other.recv(16)) for other in others)
        for other in others:
            other.sendall(b"go")
            other.close()
    print("met", ranks)
else:
    while True:
        try:
            peer = socket.create_connection((leader(), 29500), 5)
            break
        except OSError:
            time.sleep(0.02)
    with peer:
        peer.sendall(str(rank).encode())
        assert peer.recv(16) == b"go"
    print("passed")
"""


def script(text: str, **fields: Any) -> list[dict[str, Any]]:
    return [container(command=["sh", "-c", text], **fields)]


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    # An orphan that is not reaped yet is dead nevertheless.
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"


async def until(holds: Any) -> None:
    for _ in range(int(PATIENCE / 0.02)):
        if holds():
            return
        await asyncio.sleep(0.02)
    raise AssertionError("waited in vain")


async def written(path: Path) -> int:
    """The process id that a container writes to the file."""
    found = 0

    def look() -> bool:
        nonlocal found
        text = path.read_text() if path.exists() else ""
        found = int(text) if text.endswith("\n") else 0
        return found > 0

    await until(look)
    return found


async def test_four_processes_meet_at_a_barrier_and_all_succeed(world: World) -> None:
    await world.start(NODES, execute=True)
    for rank in range(4):
        env = [
            {"name": "RANK", "value": str(rank)},
            {"name": "SIZE", "value": "4"},
            {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
        ]
        member = container(command=[sys.executable, "-c", BARRIER], env=env)
        await world.create(manifest(f"ring-{rank}", node=f"n{rank % 2}", containers=[member]))
    pods = [await world.until_phase(f"ring-{rank}", "Succeeded") for rank in range(4)]
    addresses = {pod["status"]["podIP"] for pod in pods}
    assert len(addresses) == 4
    assert all(address.startswith("127.") for address in addresses)
    assert await log(world, "ring-0") == "met [1, 2, 3]\n"


async def log(world: World, name: str, query: str = "") -> str:
    answer = await world.client.request("GET", f"{PODS}/{name}/log{query}")
    return str(answer.decode())


async def test_a_process_knows_its_pod_and_its_volumes(world: World) -> None:
    await world.start(NODES, execute=True)
    text = 'echo "$HOSTNAME $(WHO) $WHO"; echo data > "$PHALANX_VOLUME_SHARED_DATA/file"'
    writer = container("writer", command=["sh", "-c", text], env=[{"name": "WHO", "value": "world"}])
    reader = container(command=["sh", "-c", 'cat "$PHALANX_VOLUME_SHARED_DATA/file"'])
    body = manifest("a", inits=[writer], containers=[reader], volumes=[{"name": "shared-data", "emptyDir": {}}])
    await world.create(body)
    await world.until_phase("a", "Succeeded")
    assert await log(world, "a", "?container=main") == "data\n"
    assert await log(world, "a", "?container=writer") == "a world world\n"


async def test_exit_codes_are_published(world: World) -> None:
    await world.start(NODES, execute=True)
    await world.create(manifest("a", containers=script("exit 7")))
    await world.create(manifest("b", containers=script("kill -9 $$$$")))
    failed = await world.until_phase("a", "Failed")
    assert failed["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 7
    killed = await world.until_phase("b", "Failed")
    assert killed["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 137


async def test_a_failed_process_is_started_again(world: World) -> None:
    await world.start(NODES, execute=True)
    mark = world.directory / "mark"
    text = f"echo try; test -e {mark} && exit 0; touch {mark}; exit 1"
    await world.create(manifest("a", policy="OnFailure", containers=script(text)))
    done = await world.until_phase("a", "Succeeded")
    assert done["status"]["containerStatuses"][0]["restartCount"] == 1
    assert await log(world, "a", "?previous=true") == "try\n"


async def test_a_command_that_does_not_exist_fails_with_the_reason(world: World) -> None:
    await world.start(NODES, execute=True)
    await world.create(manifest("a", containers=[container(command=["/no/such/program"])]))
    failed = await world.until_phase("a", "Failed")
    ended = failed["status"]["containerStatuses"][0]["state"]["terminated"]
    assert (ended["exitCode"], ended["reason"]) == (128, "StartError")
    assert "/no/such/program" in ended["message"]


async def test_a_container_without_a_command_waits_with_the_reason(world: World) -> None:
    await world.start(NODES, execute=True)
    await world.create(manifest("a"))
    waiting = await world.until(f"{PODS}/a", lambda pod: pod["status"].get("containerStatuses"))
    state = waiting["status"]["containerStatuses"][0]["state"]["waiting"]
    assert state["reason"] == "CreateContainerConfigError"
    assert "no command" in state["message"]
    await world.client.delete(f"{PODS}/a")
    await world.until_gone(f"{PODS}/a")


async def test_deletion_asks_first_and_forces_after_the_grace_period(world: World) -> None:
    await world.start(NODES, execute=True)
    polite, stubborn = world.directory / "polite", world.directory / "stubborn"
    await world.create(
        manifest(
            "polite", containers=script(f"trap 'rm {polite}; exit 0' TERM; echo $$$$ > {polite}; sleep 100 & wait")
        )
    )
    await world.create(manifest("stubborn", containers=script(f"trap '' TERM; echo $$$$ > {stubborn}; sleep 100")))
    pid = await written(stubborn)
    await written(polite)
    await world.until_phase("stubborn", "Running")
    await world.until_phase("polite", "Running")
    await world.client.delete(f"{PODS}/polite", grace_seconds=30)
    await world.client.delete(f"{PODS}/stubborn", grace_seconds=1)
    await world.until_gone(f"{PODS}/polite")
    assert not polite.exists()
    await world.until_gone(f"{PODS}/stubborn")
    assert not alive(pid)


async def test_children_that_a_container_leaves_behind_end_with_it(world: World) -> None:
    await world.start(NODES, execute=True)
    child = world.directory / "child"
    await world.create(manifest("a", containers=script(f"sleep 100 & echo $! > {child}; exit 0")))
    pid = await written(child)
    await world.until_phase("a", "Succeeded")
    await until(lambda: not alive(pid))


async def test_the_end_of_the_agent_is_the_end_of_its_processes(world: World) -> None:
    agent = await world.start(NODES, execute=True)
    file = world.directory / "pid"
    await world.create(manifest("a", policy="Always", containers=script(f"echo $$$$ > {file}; sleep 100")))
    pid = await written(file)
    await world.until_phase("a", "Running")
    await world.stop(agent)
    assert not alive(pid)
    await world.start(NODES, execute=True)
    again = await world.until(
        f"{PODS}/a",
        lambda pod: (
            pod["status"]["containerStatuses"][0]["restartCount"] == 1 and condition(pod, "Ready") == "True"
        ),
    )
    assert again["status"]["containerStatuses"][0]["lastState"]["terminated"]["reason"] == "ContainerStatusUnknown"


async def test_even_a_killed_agent_leaves_no_processes(world: World) -> None:
    world.write_nodes(NODES)
    process = await asyncio.create_subprocess_exec(
        *COMMAND,
        *("--kubeconfig", str(world.kubeconfig), "--nodes", str(world.nodes_file), "--exec"),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    assert process.stdout is not None
    try:
        assert await process.stdout.readline() == b"phalanx node-agent ready: 2 nodes\n"
        file = world.directory / "pid"
        await world.create(manifest("a", containers=script(f"echo $$$$ > {file}; sleep 100")))
        pid = await written(file)
        await world.until_phase("a", "Running")
    finally:
        process.kill()
        await process.wait()
    await until(lambda: not alive(pid))


async def test_logs_of_processes_are_private_files_and_need_rights(world: World) -> None:
    agent_logs = world.directory / "logs"
    world.write_nodes(NODES)
    words = ["--exec", "--nodes", str(world.nodes_file), "--log-dir", str(agent_logs)]
    umask = os.umask(0)
    try:
        process = await asyncio.create_subprocess_exec(
            *COMMAND, "--kubeconfig", str(world.kubeconfig), *words, stdout=asyncio.subprocess.PIPE
        )
    finally:
        os.umask(umask)
    assert process.stdout is not None
    try:
        await process.stdout.readline()
        volumes = [{"name": "scratch", "emptyDir": {}}]
        await world.create(manifest("a", containers=script("echo secret"), volumes=volumes))
        await world.until_phase("a", "Succeeded")
        modes = {path.stat().st_mode & 0o077 for path in agent_logs.iterdir() if path.name.startswith("default_")}
        modes |= {path.stat().st_mode & 0o077 for path in agent_logs.glob("**/*.log")}
        assert modes == {0}
        node = await world.get("/api/v1/nodes/n0")
        assert node is not None
        port = node["status"]["daemonEndpoints"]["kubeletEndpoint"]["Port"]
        tenant = world.server.tenant_kubeconfig("team")["users"][0]["user"]["token"]
        answers = {}
        async with aiohttp.ClientSession() as session:
            for scheme in ("http", "https"):
                url = f"{scheme}://127.0.0.1:{port}/containerLogs/default/a/main"
                for token in ("", "nonsense", tenant, world.server.token):
                    headers = {"Authorization": f"Bearer {token}"} if token else {}
                    async with session.get(url, headers=headers, ssl=False) as answer:
                        answers[scheme, token] = (answer.status, "secret" in await answer.text())
        for scheme in ("http", "https"):
            assert answers[scheme, ""] == answers[scheme, "nonsense"] == (401, False)
            assert answers[scheme, tenant] == (403, False)
            assert answers[scheme, world.server.token] == (200, True)
        assert await world.client.request("GET", f"{PODS}/a/log") == b"secret\n"
    finally:
        process.terminate()
        await process.wait()


async def test_sigterm_ends_the_command_with_success(world: World) -> None:
    world.write_nodes(NODES)
    words = ["--kubeconfig", str(world.kubeconfig), "--nodes", str(world.nodes_file)]
    process = await asyncio.create_subprocess_exec(*COMMAND, *words, stdout=asyncio.subprocess.PIPE)
    assert process.stdout is not None
    assert await process.stdout.readline() == b"phalanx node-agent ready: 2 nodes\n"
    process.send_signal(signal.SIGTERM)
    assert await process.wait() == 0


@pytest.mark.slow_but_first
@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (["--nodes", "{missing}"], 1, "nodes file {missing}"),
        (["--run-seconds", "-1"], 2, "--run-seconds"),
        (["--pod-network", "nonsense"], 2, "--pod-network"),
        (["--pod-network", "10.0.0.1/32"], 2, "--pod-network: 10.0.0.1/32 has no address for a pod"),
        (["--run-seconds", "1e300"], 2, "--run-seconds"),
        (["--restart-backoff", "0"], 2, "--restart-backoff"),
    ],
)
async def test_bad_options_are_refused_by_name(world: World, words: list[str], code: int, says: str) -> None:
    missing = str(world.directory / "missing.yaml")
    words = [word.format(missing=missing) for word in words]
    command = [*COMMAND, "--kubeconfig", str(world.kubeconfig), *words]
    done = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == code
    assert says.format(missing=missing) in done.stderr
    assert "Traceback" not in done.stderr
