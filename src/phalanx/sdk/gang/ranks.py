"""One call of a function on every rank of a gang, with the variables that torchrun sets."""

from __future__ import annotations

import concurrent.futures
import os
import tempfile
from collections.abc import Callable
from typing import Any, TypeVar, Unpack

from phalanx.sdk.cluster import Cluster
from phalanx.sdk.errors import InvalidArgumentError, WaitTimeoutError
from phalanx.sdk.gang.executor import GangExecutor
from phalanx.sdk.requests import PodOptions

T = TypeVar("T")

#: Variable with the path of a host file for mpirun: a line `ADDRESS slots=1` per rank.
HOSTFILE = "PHALANX_HOSTFILE"


class RankCall:
    """Call of a function on one rank; it is pickled and called in the worker of this rank."""

    def __init__(self, function: Callable[[int, int], Any], rank: int, addresses: list[str], port: int) -> None:
        self._function = function
        self._rank = rank
        self._addresses = addresses
        self._port = port

    def __call__(self) -> Any:
        world = len(self._addresses)
        with tempfile.NamedTemporaryFile("w", prefix="hosts-", suffix=".txt") as file:
            file.writelines(f"{address} slots=1\n" for address in self._addresses)
            file.flush()
            os.environ |= {
                "RANK": str(self._rank),
                "WORLD_SIZE": str(world),
                # A rank is a pod, so it is the only one of its "node".
                "LOCAL_RANK": "0",
                "LOCAL_WORLD_SIZE": "1",
                "MASTER_ADDR": self._addresses[0],
                "MASTER_PORT": str(self._port),
                HOSTFILE: file.name,
            }
            return self._function(self._rank, world)


def run(
    function: Callable[[int, int], T],
    ranks: int,
    *,
    timeout: float | None = None,
    cluster: Cluster | None = None,
    name: str | None = None,
    namespace: str | None = None,
    client_timeout: float = 300.0,
    python: str = "",
    way: str = "",
    **options: Unpack[PodOptions],
) -> list[T]:
    """Call `function(rank, world)` once on each of `ranks` pods that start together; return the results by rank.

    Each process has the variables of torchrun: RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR and
    MASTER_PORT, and PHALANX_HOSTFILE, the path of a host file for mpirun. If one rank fails or is lost, the gang
    ends and its error is raised: the others could wait for it forever. So the function is called at most once per
    rank. `timeout` is in seconds, for the start and for the calls each; then WaitTimeoutError is raised. `options`
    are those of `Cluster.submit`.
    """
    if ranks < 1:
        raise InvalidArgumentError(f"invalid ranks {ranks}: must be at least 1", field="ranks")
    executor = GangExecutor(
        ranks,
        cluster=cluster,
        name=name,
        namespace=namespace,
        retries=0,
        client_timeout=client_timeout,
        python=python,
        way=way,
        **options,
    )
    with executor:
        executor.start(timeout, workers=ranks)
        addresses, port = executor.addresses, int(executor.hub_facts["port"])
        futures = [executor.submit_to(rank, RankCall(function, rank, addresses, port)) for rank in range(ranks)]
        ended, _ = concurrent.futures.wait(futures, timeout, concurrent.futures.FIRST_EXCEPTION)
        failed = next((future for future in futures if future in ended and future.exception() is not None), None)
        if failed is not None:
            failed.result()
        if len(ended) < ranks:
            raise WaitTimeoutError(f"{len(ended)} of {ranks} ranks have ended after {timeout:g} s")
        return [future.result() for future in futures]
