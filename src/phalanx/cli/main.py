"""`phalanx`: the command line."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from pathlib import Path

import click
from click.shell_completion import CompletionItem

# Command -> (module:attribute, the line in `phalanx --help`); a module is imported when its command is used.
_COMMANDS: dict[str, tuple[str, str]] = {
    "up": ("phalanx.cli.up:up", "Start an embedded cluster with nodes and the scheduler, and keep it running."),
    "demo": ("phalanx.cli.demo:demo", "Run a worked scenario on an embedded cluster and show what happens."),
    "apiserver": ("phalanx_local.cli.apiserver:apiserver", "Run the embedded Kubernetes API server alone."),
    "node-agent": (
        "phalanx_local.cli.node_agent:node_agent",
        "Play the kubelets of many nodes over the Kubernetes API.",
    ),
    "install": (
        "phalanx.cli.installation.install:install",
        "Install CRDs, RBAC and the default queue into a cluster.",
    ),
    "scheduler": ("phalanx.cli.services.scheduler:scheduler", "Run the scheduler against a cluster."),
    "controllers": ("phalanx.cli.services.controllers:controllers", "Run the controllers of jobs and groups."),
    "hub": ("phalanx.cli.services.hub:hub", "Send gangs to member clusters, each whole to where it starts first."),
    "clusters": ("phalanx.cli.clusters:clusters", "List member clusters, and which gangs are where."),
    "submit": ("phalanx.cli.jobs.submit:submit", "Submit a job from a file or from flags."),
    "job": ("phalanx.cli.jobs.job:job", "Look at jobs, suspend, resume and cancel them, read their output."),
    "jobs": ("phalanx.cli.jobs.gang_list:jobs", "One line a gang or job: state, members, nodes or reason."),
    "nodes": ("phalanx.cli.nodes.node_list:nodes", "Pools of nodes, what is free, and why one is not used."),
    "order": ("phalanx.cli.explanation.turn_order:order", "Who is next, and by which key."),
    "reservations": (
        "phalanx.cli.explanation.reservation_list:reservations",
        "Room that is kept: promised starts, and reservations in advance.",
    ),
    "hold": ("phalanx.cli.orders.commands:hold", "Keep gangs that wait from starting."),
    "release": ("phalanx.cli.orders.commands:release", "Let gangs that are held take their turn."),
    "cancel": ("phalanx.cli.orders.commands:cancel", "Delete gangs with what made them."),
    "move": ("phalanx.cli.orders.commands:move", "Move gangs that wait to another queue."),
    "shell-commands": (
        "phalanx.cli.jobs.volcano_commands:shell_commands",
        "Make short commands: Volcano's vsub, vjobs, ..., or pq, pinfo, ... as Slurm's.",
    ),
    "webhook": (
        "phalanx.cli.services.webhook:webhook",
        "Fill in and check jobs, queues, groups and pods at admission.",
    ),
    "why": ("phalanx.cli.explanation.why:why", "Say why a pod or a group waits, and what would help."),
    "top": ("phalanx.cli.top.command:top", "Look at queues, gangs and nodes in the terminal, live."),
    "dashboard": (
        "phalanx.cli.services.dashboard:dashboard",
        "Serve a page that shows queues, gangs and nodes, live.",
    ),
    "defrag": ("phalanx.cli.nodes.defrag:defrag", "Free nodes, or make room for a gang, by moving pods."),
    "queue": ("phalanx.cli.accounts.queue:queue", "Say what queues have, deserve, borrow and wait for."),
    "quota": ("phalanx.cli.accounts.queue:quota", "Say what elastic quotas have, borrow and lend."),
    "history": ("phalanx.cli.accounts.history:history", "List runs of gangs, also of those that are long gone."),
    "report": ("phalanx.cli.accounts.history:report", "Say what queues and users used in a month."),
    "accounting": (
        "phalanx.cli.services.accounting:accounting",
        "Keep what gangs have used, after their objects are gone.",
    ),
    "simulate": ("phalanx.cli.simulate:simulate", "Run workloads through the scheduler in virtual time."),
    "capture": (
        "phalanx.cli.explanation.capture:capture",
        "Write down a live cluster, without secrets, for simulate and what-if.",
    ),
    "what-if": (
        "phalanx.cli.explanation.what_if:what_if",
        "Say what would happen: with a file, more nodes, another queue or policy.",
    ),
    "bench": (
        "phalanx.cli.bench.command:bench",
        "Measure how fast pods are bound, beside what the API server allows.",
    ),
    "migrate": ("phalanx.cli.migrate:migrate", "Say what of another scheduler's objects works here as it is."),
    "policy": ("phalanx.cli.policy:policy", "Check a policy file and show the pipeline that it makes."),
}
# The same under names of their own, for whoever links them (`phalanx shell-commands`).
SHORT_COMMANDS: dict[str, tuple[str, str]] = {
    name: (f"phalanx.cli.jobs.volcano_commands:{name}", told)
    for name, told in (
        ("vsub", "Submit a job."),
        ("vjobs", "List Volcano Jobs."),
        ("vcancel", "Delete a job."),
        ("vsuspend", "Suspend a job."),
        ("vresume", "Let a suspended job go on."),
        ("vqueues", "List queues."),
    )
}
# Short names for those who come from Slurm, made by `phalanx shell-commands --set slurm`.
SLURM_COMMANDS: dict[str, tuple[str, str]] = {
    "pq": ("phalanx.cli.jobs.gang_list:jobs", "phalanx jobs, as squeue."),
    "pinfo": ("phalanx.cli.nodes.node_list:nodes", "phalanx nodes, as sinfo."),
    "psub": ("phalanx.cli.jobs.submit:submit", "phalanx submit, as sbatch."),
    "pcancel": ("phalanx.cli.orders.commands:cancel", "phalanx cancel, as scancel."),
    "pprio": ("phalanx.cli.explanation.turn_order:order", "phalanx order, as sprio."),
    "pshare": ("phalanx.cli.accounts.queue:queue_tree", "phalanx queue tree, as sshare."),
}
_LINKED = {**SHORT_COMMANDS, **SLURM_COMMANDS}
# Those that need the second package and what the extra [local] brings.
_LOCAL = ("up", "demo", "apiserver", "node-agent")
# Those that need what the extra [webhook] brings, and that alone.
_CERTIFIED = ("webhook",)
# Those that need a terminal's whole screen, and the extra [tui].
_SCREEN = ("top",)
# Those that need a database, and the extra [history].
_ACCOUNTS = ("history", "report", "accounting")


def _load(where: str) -> click.Command:
    module, _, attribute = where.partition(":")
    command = getattr(importlib.import_module(module), attribute)
    assert isinstance(command, click.Command)
    return command


class LazyGroup(click.Group):
    """Lists commands without importing them."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        if cmd_name in _LOCAL and not all(map(importlib.util.find_spec, ("phalanx_local", "cryptography"))):
            raise click.ClickException(
                f"`phalanx {cmd_name}` needs the local cluster: pip install 'phalanx-scheduler[local]'"
            )
        if cmd_name in _CERTIFIED and importlib.util.find_spec("cryptography") is None:
            raise click.ClickException(
                f"`phalanx {cmd_name}` makes certificates: pip install 'phalanx-scheduler[webhook]'"
            )
        if cmd_name in _SCREEN and importlib.util.find_spec("textual") is None:
            raise click.ClickException(
                f"`phalanx {cmd_name}` draws on the whole screen: pip install 'phalanx-scheduler[tui]'"
            )
        if cmd_name in _ACCOUNTS and not all(map(importlib.util.find_spec, ("sqlalchemy", "alembic"))):
            raise click.ClickException(
                f"`phalanx {cmd_name}` needs a database: pip install 'phalanx-scheduler[history]'"
            )
        return _load(_COMMANDS[cmd_name][0])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """The commands, without importing them."""
        known = ((name, told) for name, (_, told) in _COMMANDS.items() if name.startswith(incomplete))
        return [CompletionItem(name, help=told) for name, told in known]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, help_text) for name, (_, help_text) in _COMMANDS.items()])


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="phalanx-scheduler", prog_name="phalanx")
def cli() -> None:
    """A batch scheduler for Kubernetes: a gang moves as one, or not at all."""


def main() -> None:
    """The entry point, also of `kubectl phalanx` and of links with short names.

    Exit codes: 0 good, 1 failed, 2 usage; of waiting also 124 for time that is up.
    """
    # Nothing here multiplies matrices; the threads that numpy keeps for that would take turns from who has work.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    called = Path(sys.argv[0]).name
    command = _load(_LINKED[called][0]) if called in _LINKED else cli
    name = "kubectl phalanx" if called == "kubectl-phalanx" else called if called in _LINKED else None
    try:
        # Click hands the code of an early end out instead of ending with it.
        sys.exit(command.main(prog_name=name, standalone_mode=False) or 0)
    except click.exceptions.Abort:
        sys.exit(130)
    except click.UsageError as error:
        error.show()
        sys.exit(error.exit_code)
    except click.ClickException as error:
        from phalanx.cli.listing.harmless import harmless_lines

        # It may quote what the API says.
        click.echo(f"Error: {harmless_lines(error.format_message())}", err=True)
        sys.exit(error.exit_code)
    except click.exceptions.Exit as error:
        sys.exit(error.exit_code)
    except BrokenPipeError:
        sys.exit(1)
