"""One call per rank with torchrun's variables."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import cloudpickle
import pytest

from phalanx.sdk import Cluster, InvalidArgumentError, run
from phalanx.sdk.gang.ranks import RankCall
from tests.sdk.test_gang_on_processes import nothing_left

cloudpickle.register_pickle_by_value(sys.modules[__name__])

_VARIABLES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")


def environment(rank: int, world: int) -> tuple[int, int, list[str], list[str]]:
    hosts = Path(os.environ["PHALANX_HOSTFILE"]).read_text().splitlines()
    return rank, world, [os.environ[name] for name in _VARIABLES], hosts


def sum_of_ranks(rank: int, world: int) -> int:
    """Add up all ranks at rank 0 over the address and port that torchrun's variables name."""
    import socket
    import time

    address = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
    if rank:
        for _ in range(200):
            try:
                with socket.create_connection(address, 5) as connection:
                    connection.sendall(bytes([rank]))
                    return connection.recv(1)[0]
            except ConnectionRefusedError:
                time.sleep(0.05)
        raise TimeoutError
    with socket.create_server(address) as server:
        peers = [server.accept()[0] for _ in range(world - 1)]
        total = sum(peer.recv(1)[0] for peer in peers)
        for peer in peers:
            peer.sendall(bytes([total]))
            peer.close()
    return total


def fail_on_rank_1(rank: int, world: int) -> None:
    import time

    if rank == 1:
        raise ValueError("rank 1 fails")
    time.sleep(600)


def test_rank_has_the_variables_of_torchrun_and_a_host_file(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*_VARIABLES, "LOCAL_WORLD_SIZE", "PHALANX_HOSTFILE"):
        monkeypatch.setenv(name, "")
    rank, world, variables, hosts = RankCall(environment, 1, ["10.0.0.1", "10.0.0.2"], 29500)()
    assert (rank, world) == (1, 2)
    assert variables == ["1", "2", "0", "10.0.0.1", "29500"]
    assert hosts == ["10.0.0.1 slots=1", "10.0.0.2 slots=1"]


def test_no_rank_is_an_error() -> None:
    with pytest.raises(InvalidArgumentError, match="at least 1"):
        run(environment, 0)


@pytest.mark.slow
@pytest.mark.e2e
def test_ranks_meet_at_the_master_and_a_failed_rank_ends_all(local_cluster: Cluster, local_directory: Path) -> None:
    assert run(sum_of_ranks, 4, cluster=local_cluster, name="ranks", timeout=60) == [6] * 4
    with pytest.raises(ValueError, match="rank 1 fails"):
        run(fail_on_rank_1, 3, cluster=local_cluster, name="ranks", timeout=60)
    assert nothing_left(local_directory, "ranks")
