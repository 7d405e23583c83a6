"""Options shared by commands, as one typed object beside the dataclass of a command's own arguments.

`pass_invocation` is the innermost decorator of a command with shared options, `pass_arguments` of any other.
A callback therefore has at most two parameters, however many options it has.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar, overload

import click

from phalanx.cli.arguments import Dress, build_arguments, combined
from phalanx.cli.connection import ClientOptions, parsed_client_options, print_structured, run_on_client

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

    from phalanx.cli.scheduler_policy import FindPolicy, ReadPolicy
    from phalanx.kube.client import KubeClient
    from phalanx.reports.published_policy import ListSettings
    from phalanx.scheduling.framework.policy import Policy

S = TypeVar("S")
T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Invocation:
    """Values of the options shared by commands: cluster, policy, schedulers and output format.

    A command without one of these options sees its default. An empty `scheduler_names` or `config` means: read it
    from the scheduler.
    """

    client: ClientOptions
    config: str = ""
    scheduler_names: tuple[str, ...] = ()
    lease_namespace: str = "kube-system"
    output: str = "table"

    @property
    def prints_table(self) -> bool:
        return self.output == "table"

    @property
    def names_scheduler(self) -> bool:
        """Whether an option names a scheduler or a policy: a server plans as the scheduler that it found."""
        return bool(self.config or self.scheduler_names) or self.lease_namespace != Invocation.lease_namespace

    def run(
        self,
        work: Callable[[KubeClient], Coroutine[Any, Any, T]],
        loop_factory: Callable[[], AbstractEventLoop] | None = None,
    ) -> T:
        """Call `work` with a client of the cluster. Raises click.ClickException with one line on failure."""
        return run_on_client(work, self.client, loop_factory)

    def show(self, work: Callable[[KubeClient], Coroutine[Any, Any, None]], *, watch: bool) -> None:
        """Call `work`, which prints an answer, with a client. With `watch`, Ctrl-C is a regular end."""
        try:
            self.run(work)
        except KeyboardInterrupt:
            if not watch:
                raise

    def policy_reader(self) -> ReadPolicy:
        """Return a function that reads the scheduler's policy and names; see `scheduler_policy.policy_reader`.

        Raises click.ClickException for an invalid policy file.
        """
        from phalanx.cli.scheduler_policy import policy_reader

        return policy_reader(self.config, self.lease_namespace, self.scheduler_names)

    async def read_policy(self, client: KubeClient) -> tuple[Policy, tuple[str, ...]]:
        """Return the scheduler's policy and names. Its machinery is imported here, so that a question to the server
        needs none. Raises click.ClickException for an invalid policy file."""
        return await self._policy_reader(client)

    @functools.cached_property
    def _policy_reader(self) -> ReadPolicy:
        return self.policy_reader()

    def policy_finder(self) -> FindPolicy:
        """Return a function that reads the policy with its text and the scheduler names.

        Raises click.ClickException for an invalid policy file.
        """
        from phalanx.cli.scheduler_policy import policy_finder

        return policy_finder(self.config, self.lease_namespace, self.scheduler_names)

    async def list_settings(self, client: KubeClient) -> ListSettings:
        """Return the settings of the scheduler that lists need, without its machinery unless --config names a
        policy file. Raises click.ClickException for an invalid one."""
        from phalanx.reports.published_policy import ListSettings, read_list_settings

        if not self.config:
            return await read_list_settings(client, self.lease_namespace, self.scheduler_names)
        from phalanx.daemon.policy_file import dialect_options

        found = await self.policy_finder()(client)
        return ListSettings(dialect_options(found.policy), found.scheduler_names)

    def print_document(self, document: object) -> None:
        """Print `document` on stdout: YAML with `-o yaml`, else JSON."""
        print_structured(document, self.output)

    def refuse_empty_names(self) -> None:
        """Raise click.UsageError if one of the scheduler names is empty."""
        refuse_empty_names(self.scheduler_names)


def refuse_empty_names(scheduler_names: tuple[str, ...]) -> None:
    """Raise click.UsageError if one of `scheduler_names` is empty."""
    if not all(scheduler_names):
        raise click.UsageError("--scheduler-name must not be empty")


@overload
def pass_invocation(
    arguments: type[S], *shared: Dress
) -> Callable[[Callable[[Invocation, S], None]], Callable[..., None]]: ...


@overload
def pass_invocation(
    arguments: None, *shared: Dress
) -> Callable[[Callable[[Invocation], None]], Callable[..., None]]: ...


def pass_invocation(
    arguments: type[Any] | None, *shared: Dress
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Decorate a command so that it is called with an Invocation and an instance of `arguments` (a dataclass; None
    for no second argument).

    Each parsed value goes to the field of its name, first of `arguments`, then of Invocation. The options `shared`
    are added to the command in this order, after those of the decorators above.
    """

    def dress(command: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(command)
        def callback(**values: Any) -> None:
            own = () if arguments is None else (build_arguments(arguments, values),)
            client = parsed_client_options(values.pop("kubeconfig", None))
            command(Invocation(client=client, **values), *own)

        return combined(*shared)(callback)

    return dress
