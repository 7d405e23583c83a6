"""`phalanx`: the command line."""

from __future__ import annotations

import importlib
import importlib.util
import sys

import click

# Command -> (module:attribute, the line in `phalanx --help`); a module is imported when its command is used.
_COMMANDS: dict[str, tuple[str, str]] = {
    "up": ("phalanx.cli.up:up", "Start an embedded cluster with nodes and the scheduler, and keep it running."),
    "demo": ("phalanx.cli.demo:demo", "Run a worked scenario on an embedded cluster and show what happens."),
    "apiserver": ("phalanx_local.cli.apiserver:apiserver", "Run the embedded Kubernetes API server alone."),
    "node-agent": (
        "phalanx_local.cli.node_agent:node_agent",
        "Play the kubelets of many nodes over the Kubernetes API.",
    ),
    "install": ("phalanx.cli.install:install", "Install CRDs, RBAC and the default queue into a cluster."),
    "scheduler": ("phalanx.cli.scheduler:scheduler", "Run the scheduler against a cluster."),
    "why": ("phalanx.cli.why:why", "Say why a pod or a group waits, and what would help."),
    "defrag": ("phalanx.cli.defrag:defrag", "Free nodes, or make room for a gang, by moving pods."),
    "queue": ("phalanx.cli.queue:queue", "Say what queues have, deserve, borrow and wait for."),
    "quota": ("phalanx.cli.queue:quota", "Say what elastic quotas have, borrow and lend."),
    "policy": ("phalanx.cli.policy:policy", "Check a policy file and show the pipeline that it makes."),
}
# Those that need the second package and what the extra [local] brings.
_LOCAL = ("up", "demo", "apiserver", "node-agent")


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
        module, _, attribute = _COMMANDS[cmd_name][0].partition(":")
        command = getattr(importlib.import_module(module), attribute)
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, help_text) for name, (_, help_text) in _COMMANDS.items()])


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="phalanx-scheduler", prog_name="phalanx")
def cli() -> None:
    """A batch scheduler for Kubernetes: a gang moves as one, or not at all."""


def main() -> None:
    """The entry point. Exit codes: 0 good, 1 failed, 2 usage."""
    try:
        # Click hands the code of an early end out instead of ending with it.
        sys.exit(cli.main(standalone_mode=False) or 0)
    except click.exceptions.Abort:
        sys.exit(130)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except click.exceptions.Exit as error:
        sys.exit(error.exit_code)
    except BrokenPipeError:
        sys.exit(1)
