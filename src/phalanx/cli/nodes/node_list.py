"""`phalanx nodes`: pools of nodes, what is free on them, and why one is not used."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click
import msgspec

from phalanx.cli.connection import lease_namespace_option, policy_option
from phalanx.cli.listing.options import chosen_options, list_options

if TYPE_CHECKING:
    from collections.abc import Sequence

    from phalanx.cli.listing.options import ListOptions
    from phalanx.cli.listing.table import Column
    from phalanx.reports.nodes.entries import NodeEntry
    from phalanx.scheduling.framework.policy import Policy

E = TypeVar("E", bound=msgspec.Struct)


@click.command("nodes", short_help="Pools of nodes, what is free, and why one is not used.")
@click.option("-s", "--summarize", is_flag=True, help="One line a pool: allocated/idle/other/total.")
@click.option("-N", "--node-oriented", is_flag=True, help="One line a node.")
@click.option("-R", "--list-reasons", is_flag=True, help="Why nodes are not used, or not by all, and since when.")
@click.option("-p", "--pool", "pools", multiple=True, metavar="POOL", help="Only those in it; may be repeated.")
@click.option(
    "-t", "--state", "states", multiple=True, metavar="STATE", help="Only those in it, such as idle,drain."
)
@click.option(
    "--pool-label", default="", metavar="KEY", help="The label that names a node's pool; by default the usual ones."
)
@list_options(namespaced=False)
@policy_option
@lease_namespace_option
def nodes(
    summarize: bool,
    node_oriented: bool,
    list_reasons: bool,
    pools: tuple[str, ...],
    states: tuple[str, ...],
    pool_label: str,
    config: str,
    lease_namespace: str,
    **chosen: Any,
) -> None:
    """The nodes by pool and state, as sinfo shows them.

    STATE is idle, mixed, alloc (no GPU is free, or no CPU where it has none), drain (cordoned, with pods), drained
    or down (not ready). Pods of DaemonSets and static pods do not count. FREE is what is free on all of them,
    BIGGEST-FREE on the node with most. A pool is what the label volcano.sh/nodegroup-name says, or that of the
    cloud or autoscaler.

    \b
    phalanx nodes
    phalanx nodes -N -t idle,mixed --sort-by -gpu
    phalanx nodes -R
    """
    from phalanx.cli.scheduler_policy import policy_reader
    from phalanx.reports.nodes import entries as made

    options = chosen_options(chosen)
    if summarize + node_oriented + list_reasons > 1:
        raise click.UsageError("-s, -N and -R exclude each other")
    read_policy = policy_reader(config, lease_namespace, ("phalanx",), names_only=True)
    read = _reader(options, set(pools), _states(states), pool_label, read_policy, chosen.get("selector", ""))
    from phalanx.cli.nodes import node_columns

    if summarize:
        _show(options, node_columns.SUMMARIES, lambda each: each.pool, read, made.by_pool)
    elif node_oriented:
        _show(options, node_columns.NODES, lambda each: f"node/{each.name}", read, list)
    elif list_reasons:
        _show(options, node_columns.REASONS, lambda each: each.reason, read, made.by_reason)
    else:
        _show(options, node_columns.GROUPS, lambda each: f"{each.pool}/{each.state}", read, made.by_state)


def _states(texts: tuple[str, ...]) -> set[str]:
    """Raises click.UsageError."""
    from phalanx.reports.nodes.entries import NodeState

    known = [str(state) for state in NodeState]
    words = {word.lower() for text in texts for word in text.split(",") if word}
    for word in sorted(words):
        if word not in known:
            raise click.UsageError(f"--state {word!r}: write one of {', '.join(known)}")
    return words


Read = Callable[[Any], Awaitable["list[NodeEntry]"]]


def _reader(
    options: ListOptions,
    pools: set[str],
    states: set[str],
    pool_label: str,
    read_policy: Callable[[Any], Awaitable[tuple[Policy, tuple[str, ...]]]],
    selector: str,
) -> Read:
    from phalanx.cli.listing.progress import Progress
    from phalanx.daemon.policy_file import dialect_options
    from phalanx.reports.nodes.node_list import read_nodes

    async def read(client: Any) -> list[NodeEntry]:
        policy, _ = await read_policy(client)
        dialects = dialect_options(policy)
        with Progress() as progress:
            found = await read_nodes(client, selector, pool_label, dialects, progress.advanced)
        return [
            node for node in found if (not pools or node.pool in pools) and (not states or node.state in states)
        ]

    return read


def _show(
    options: ListOptions,
    columns: Sequence[Column[E]],
    name: Callable[[E], str],
    read: Read,
    arranged: Callable[[list[NodeEntry]], list[E]],
) -> None:
    from phalanx.cli.listing.listing import Found, Listing, show
    from phalanx.cli.nodes.node_columns import document

    async def found(client: Any) -> Found[E]:
        return Found(arranged(await read(client)))

    # What is not there any more leaves no row: the others of its pool have changed.
    show(Listing(columns=columns, key=name, name=name, document=document), found, options)
