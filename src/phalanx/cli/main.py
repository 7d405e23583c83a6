"""Entry point of the command line `phalanx`."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from pathlib import Path

import click
from click.shell_completion import CompletionItem

# Command -> (module:attribute, summary in `phalanx --help`). A module is imported when its command is used.
_COMMANDS: dict[str, tuple[str, str]] = {
    "up": ("phalanx.cli.up:up", "Start an embedded cluster with nodes and the scheduler, and run it until Ctrl-C."),
    "demo": ("phalanx.cli.demo:demo", "Run a demo scenario on an embedded cluster."),
    "apiserver": ("phalanx_local.cli.apiserver:apiserver", "Run the embedded Kubernetes API server alone."),
    "node-agent": (
        "phalanx_local.cli.node_agent:node_agent",
        "Simulate the kubelets of many nodes over the Kubernetes API.",
    ),
    "install": (
        "phalanx.cli.installation.install:install",
        "Install CRDs, RBAC and the default queue into a cluster.",
    ),
    "scheduler": ("phalanx.cli.services.scheduler:scheduler", "Run the scheduler against a cluster."),
    "controllers": ("phalanx.cli.services.controllers:controllers", "Run the controllers of jobs and PodGroups."),
    "hub": ("phalanx.cli.services.hub:hub", "Dispatch each gang to the member cluster where it starts first."),
    "clusters": ("phalanx.cli.clusters:clusters", "List member clusters and the gangs dispatched to them."),
    "submit": ("phalanx.cli.jobs.submit:submit", "Submit a job from a file or from flags."),
    "job": ("phalanx.cli.jobs.job:job", "List, describe, suspend, resume and cancel jobs, and print their logs."),
    "jobs": ("phalanx.cli.jobs.gang_list:jobs", "List gangs and jobs with state, members, nodes or reason."),
    "nodes": (
        "phalanx.cli.nodes.node_list:nodes",
        "List node pools with free resources and the reasons of unusable nodes.",
    ),
    "order": ("phalanx.cli.explanation.turn_order:order", "Show the scheduling order and the sort keys."),
    "reservations": (
        "phalanx.cli.explanation.reservation_list:reservations",
        "List promised starts and advance reservations.",
    ),
    "hold": ("phalanx.cli.orders.commands:hold", "Hold waiting gangs: they do not start until released."),
    "release": ("phalanx.cli.orders.commands:release", "Release held gangs."),
    "cancel": ("phalanx.cli.orders.commands:cancel", "Delete gangs with their pods and their owner."),
    "move": ("phalanx.cli.orders.commands:move", "Move waiting gangs to another queue."),
    "shell-commands": (
        "phalanx.cli.jobs.volcano_commands:shell_commands",
        "Link short commands: vsub, vjobs, ... (Volcano) or pq, pinfo, ... (Slurm).",
    ),
    "webhook": (
        "phalanx.cli.services.webhook:webhook",
        "Run the admission webhook: set defaults, validate jobs, queues and pods.",
    ),
    "why": ("phalanx.cli.explanation.why:why", "Explain why a pod or gang waits, and how to fix it."),
    "top": ("phalanx.cli.top.command:top", "Show queues, gangs and nodes live in the terminal."),
    "dashboard": (
        "phalanx.cli.services.dashboard:dashboard",
        "Serve a web page with live queues, gangs and nodes.",
    ),
    "defrag": ("phalanx.cli.nodes.defrag:defrag", "Move pods to empty nodes or to make room for a gang."),
    "queue": (
        "phalanx.cli.accounts.queue:queue",
        "Show the usage, deserved share and waiting gangs of queues; change queues.",
    ),
    "quota": (
        "phalanx.cli.accounts.queue:quota",
        "Show the usage, borrowing and lending of elastic quotas; set quotas.",
    ),
    "history": ("phalanx.cli.accounts.history:history", "List past and current runs of gangs."),
    "report": ("phalanx.cli.accounts.history:report", "Report the usage of queues and users in a month."),
    "accounting": (
        "phalanx.cli.services.accounting:accounting",
        "Record the usage of gangs in a database.",
    ),
    "simulate": ("phalanx.cli.simulate:simulate", "Run workloads through the scheduler in virtual time."),
    "capture": (
        "phalanx.cli.explanation.capture:capture",
        "Save a live cluster to a file, without secrets, for simulate and what-if.",
    ),
    "what-if": (
        "phalanx.cli.explanation.what_if:what_if",
        "Predict the effect of a new job, more nodes, another queue or policy.",
    ),
    "bench": (
        "phalanx.cli.bench.command:bench",
        "Measure pods bound per second against the API server's limit.",
    ),
    "migrate": (
        "phalanx.cli.migrate:migrate",
        "Check which objects of another scheduler work here, and plan the migration.",
    ),
    "policy": ("phalanx.cli.policy:policy", "Check a policy file and show its plugin pipeline."),
}
# Short commands of Volcano; `phalanx shell-commands` creates the links.
SHORT_COMMANDS: dict[str, tuple[str, str]] = {
    name: (f"phalanx.cli.jobs.volcano_commands:{name}", summary)
    for name, summary in (
        ("vsub", "Submit a job."),
        ("vjobs", "List Volcano Jobs."),
        ("vcancel", "Delete a job."),
        ("vsuspend", "Suspend a job."),
        ("vresume", "Resume a suspended job."),
        ("vqueues", "List queues."),
    )
}
# Short commands for users of Slurm; `phalanx shell-commands --set slurm` creates the links.
SLURM_COMMANDS: dict[str, tuple[str, str]] = {
    "pq": ("phalanx.cli.jobs.gang_list:jobs", "Run phalanx jobs (like squeue)."),
    "pinfo": ("phalanx.cli.nodes.node_list:nodes", "Run phalanx nodes (like sinfo)."),
    "psub": ("phalanx.cli.jobs.submit:submit", "Run phalanx submit (like sbatch)."),
    "pcancel": ("phalanx.cli.orders.commands:cancel", "Run phalanx cancel (like scancel)."),
    "pprio": ("phalanx.cli.explanation.turn_order:order", "Run phalanx order (like sprio)."),
    "pshare": ("phalanx.cli.accounts.queue:queue_tree", "Run phalanx queue tree (like sshare)."),
}
_LINKED = {**SHORT_COMMANDS, **SLURM_COMMANDS}
# Commands that need the package phalanx-local and the extra [local].
_LOCAL = ("up", "demo", "apiserver", "node-agent")
# Commands that need the extra [webhook] (certificates).
_CERTIFIED = ("webhook",)
# Commands that need the extra [tui] (full-screen terminal).
_SCREEN = ("top",)
# Commands that need the extra [history] (database).
_ACCOUNTS = ("accounting",)


def _load(where: str) -> click.Command:
    module, _, attribute = where.partition(":")
    command = getattr(importlib.import_module(module), attribute)
    assert isinstance(command, click.Command)
    return command


class LazyGroup(click.Group):
    """Command group that lists its commands without importing them."""

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
                f"`phalanx {cmd_name}` needs the certificate library: pip install 'phalanx-scheduler[webhook]'"
            )
        if cmd_name in _SCREEN and importlib.util.find_spec("textual") is None:
            raise click.ClickException(
                f"`phalanx {cmd_name}` needs the terminal interface: pip install 'phalanx-scheduler[tui]'"
            )
        if cmd_name in _ACCOUNTS and not all(map(importlib.util.find_spec, ("sqlalchemy", "alembic"))):
            raise click.ClickException(
                f"`phalanx {cmd_name}` needs a database: pip install 'phalanx-scheduler[history]'"
            )
        return _load(_COMMANDS[cmd_name][0])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Return the matching command names without importing the commands."""
        matches = ((name, summary) for name, (_, summary) in _COMMANDS.items() if name.startswith(incomplete))
        return [CompletionItem(name, help=summary) for name, summary in matches]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, help_text) for name, (_, help_text) in _COMMANDS.items()])


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="phalanx-scheduler", prog_name="phalanx")
def cli() -> None:
    """Phalanx, a gang scheduler for Kubernetes: the pods of a gang start together or not at all.

    \b
    phalanx up
    phalanx jobs -A
    phalanx why train
    """


def main() -> None:
    """Run the command line, also as `kubectl phalanx` and under its short names.

    Exit codes: 0 success, 1 failure, 2 usage error; wait commands also 124 for a timeout.
    """
    # No command multiplies matrices: idle BLAS threads of numpy would only take CPU time.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    program = Path(sys.argv[0]).name
    command = _load(_LINKED[program][0]) if program in _LINKED else cli
    name = "kubectl phalanx" if program == "kubectl-phalanx" else program if program in _LINKED else None
    try:
        # In this mode click returns the exit code of an early exit instead of raising SystemExit.
        sys.exit(command.main(prog_name=name, standalone_mode=False) or 0)
    except click.exceptions.Abort:
        sys.exit(130)
    except click.UsageError as error:
        error.show()
        sys.exit(error.exit_code)
    except click.ClickException as error:
        from phalanx.cli.listing.harmless import harmless_lines

        # The message can contain text from the API server, with control characters.
        click.echo(f"Error: {harmless_lines(error.format_message())}", err=True)
        sys.exit(error.exit_code)
    except click.exceptions.Exit as error:
        sys.exit(error.exit_code)
    except BrokenPipeError:
        sys.exit(1)
