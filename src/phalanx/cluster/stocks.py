"""The stocks that a cluster has, each kind once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from phalanx.cluster.ports import Ports
from phalanx.cluster.stock import Stock

if TYPE_CHECKING:
    from phalanx.cluster.nodes import NodeTable


def stocks_of(nodes: NodeTable) -> dict[str, Stock]:
    """name -> books, empty."""
    stocks: tuple[Stock, ...] = (Ports(nodes),)
    return {stock.name: stock for stock in stocks}
