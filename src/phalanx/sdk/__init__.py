"""Phalanx from Python: submit jobs, wait for them, and read their state, reason and start.

Names are imported when they are first used, so that `import phalanx.sdk` costs little.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from phalanx.sdk.arrays import as_completed as as_completed
    from phalanx.sdk.async_cluster import AsyncCluster as AsyncCluster
    from phalanx.sdk.async_job import AsyncJob as AsyncJob
    from phalanx.sdk.cluster import Cluster as Cluster
    from phalanx.sdk.cluster import connect as connect
    from phalanx.sdk.errors import ConnectionFailedError as ConnectionFailedError
    from phalanx.sdk.errors import GangEndedError as GangEndedError
    from phalanx.sdk.errors import GangUnreachableError as GangUnreachableError
    from phalanx.sdk.errors import InvalidArgumentError as InvalidArgumentError
    from phalanx.sdk.errors import JobFailedError as JobFailedError
    from phalanx.sdk.errors import JobNotFoundError as JobNotFoundError
    from phalanx.sdk.errors import PhalanxError as PhalanxError
    from phalanx.sdk.errors import PythonVersionError as PythonVersionError
    from phalanx.sdk.errors import RequestRejectedError as RequestRejectedError
    from phalanx.sdk.errors import TaskTimeoutError as TaskTimeoutError
    from phalanx.sdk.errors import UnpicklableError as UnpicklableError
    from phalanx.sdk.errors import WaitTimeoutError as WaitTimeoutError
    from phalanx.sdk.errors import WorkerLostError as WorkerLostError
    from phalanx.sdk.gang.executor import GangExecutor as GangExecutor
    from phalanx.sdk.gang.ranks import run as run
    from phalanx.sdk.job import Job as Job

_ERRORS = (
    "GangEndedError",
    "GangUnreachableError",
    "PythonVersionError",
    "TaskTimeoutError",
    "UnpicklableError",
    "WorkerLostError",
    "ConnectionFailedError",
    "InvalidArgumentError",
    "JobFailedError",
    "JobNotFoundError",
    "PhalanxError",
    "RequestRejectedError",
    "WaitTimeoutError",
)
_MODULES = {
    "AsyncCluster": "async_cluster",
    "AsyncJob": "async_job",
    "Cluster": "cluster",
    "GangExecutor": "gang.executor",
    "Job": "job",
    "as_completed": "arrays",
    "connect": "cluster",
    "run": "gang.ranks",
    **dict.fromkeys(_ERRORS, "errors"),
}
__all__ = [*sorted(_MODULES)]


def __getattr__(name: str) -> Any:
    module = _MODULES.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(f"{__name__}.{module}"), name)


def __dir__() -> list[str]:
    return __all__
