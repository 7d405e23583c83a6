"""Dask clusters whose scheduler and workers are one gang; needs the extra dask."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from phalanx.dask.cluster import PhalanxCluster as PhalanxCluster

__all__ = ["PhalanxCluster"]


def __getattr__(name: str) -> Any:
    if name != "PhalanxCluster":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from phalanx.dask.cluster import PhalanxCluster

    return PhalanxCluster
