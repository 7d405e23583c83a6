"""Dask clusters whose scheduler and workers are one gang; needs the extra dask."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from phalanx.model.text.decoding import quoted

if TYPE_CHECKING:
    from phalanx.dask.cluster import PhalanxCluster as PhalanxCluster

__all__ = ["PhalanxCluster"]


def __getattr__(name: str) -> Any:
    if name != "PhalanxCluster":
        raise AttributeError(f"module {quoted(__name__)} has no attribute {quoted(name)}")
    from phalanx.dask.cluster import PhalanxCluster

    return PhalanxCluster
