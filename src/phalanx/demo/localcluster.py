"""A whole cluster on this machine: API server, kubelets and scheduler as child processes that meet over HTTP."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import signal
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path

import msgspec

from phalanx.admission.webhook.registration import unregister
from phalanx.kube.auth.config import load_config
from phalanx.kube.client import KubeClient
from phalanx.kube.errors import ApiError
from phalanx_local.authentication.kubeconfig import write_private
from phalanx_local.controllers.volumes import FAKE_PROVISIONER
from phalanx_local.server import free_port

# Long enough for a slow machine under load; a start takes about two seconds.
_START_SECONDS = 60.0
_STOP_SECONDS = 5.0
_LOG_TAIL = 15
# The service accounts that `phalanx install` makes; a token is good for as long as anybody keeps a cluster up.
_NAMESPACE = "phalanx-system"
_ACCOUNTS = ("scheduler", "controllers", "webhook")
_TOKEN_SECONDS = 365 * 24 * 3600
_PR_SET_PDEATHSIG = 1  # linux/prctl.h


def _ends_with_us() -> Callable[[], None] | None:
    """Makes a child get SIGTERM when we are killed without a chance to stop it. Only Linux can do that."""
    if sys.platform != "linux":
        return None
    library = ctypes.CDLL(None, use_errno=True)

    def ask() -> None:
        library.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)

    return ask


class StartError(Exception):
    """A part of the cluster did not start; the text holds the end of its log."""


class LocalOptions(msgspec.Struct, frozen=True):
    """`directory` gets the kubeconfig and a log per process. `nodes_file` is followed while the cluster runs.

    Pods that name no scheduler of ours are scheduled as well, because nobody else is there to do it. `tenants` are
    namespaces and the kubeconfigs of those who may edit them. With `webhook` jobs, queues and groups are filled in
    and checked at admission. With `dashboard` the page is served, with the administrator's rights.
    """

    directory: Path
    nodes_file: Path
    kubeconfig: Path
    port: int = 0
    data: Path | None = None
    policy: str = ""
    metrics_address: str = ""
    run_processes: bool = False
    webhook: bool = False
    dashboard: bool = False
    tenants: tuple[tuple[str, Path], ...] = ()
    scheduler_names: tuple[str, ...] = ("phalanx", "default-scheduler")


def unused_port() -> int:
    """One on which nobody listens now."""
    return free_port()


class LocalCluster:
    """Its parts: `apiserver`, `node-agent`, `scheduler`, `controllers`; maybe `webhook`, `dashboard` and `hub`.

    `dashboard_address` opens the page once, "" for none; the address that is good after it is in `dashboard_file`.
    """

    def __init__(self, options: LocalOptions) -> None:
        self.options = options
        self.client: KubeClient
        self.dashboard_address = ""
        self._children: dict[str, asyncio.subprocess.Process] = {}

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[LocalCluster]:
        """The cluster is ready inside and gone after it. Raises StartError."""
        options = self.options
        options.directory.mkdir(parents=True, exist_ok=True)
        try:
            await self._start_server()
            await self._once("install", ["install", "--kubeconfig", str(options.kubeconfig)])
            async with KubeClient(load_config(str(options.kubeconfig))) as self.client:
                await asyncio.gather(*map(self._issue_token, _ACCOUNTS))
                if options.webhook:
                    await self.start_webhook()
                else:
                    await unregister(self.client)  # one of last time would be waited for in vain
                await asyncio.gather(self.start_kubelets(), self.start_scheduler(), self.start_controllers())
                await self._offer_storage()
                if options.dashboard:
                    await self.start_dashboard()
                yield self
        finally:
            for name in ("hub", "dashboard", "controllers", "scheduler", "webhook", "node-agent", "apiserver"):
                await self.end(name)

    async def _issue_token(self, name: str) -> None:
        """A part runs as the service account that was installed for it, with its rights and no others."""
        path = f"/api/v1/namespaces/{_NAMESPACE}/serviceaccounts/phalanx-{name}/token"
        issued = await self.client.create(path, {"spec": {"expirationSeconds": _TOKEN_SECONDS}})
        config = msgspec.json.decode(self.options.kubeconfig.read_bytes())
        config["users"][0]["user"] = {"token": issued["status"]["token"]}
        write_private(self._kubeconfig_of(name), config)

    def _kubeconfig_of(self, name: str) -> Path:
        return self.options.directory / f"{name}.kubeconfig"

    async def _offer_storage(self) -> None:
        """Claims that name no class get volumes, as users expect of a cluster; they are made when their pods are
        placed."""
        with contextlib.suppress(ApiError):  # it may be there from last time
            await self.client.create(
                "/apis/storage.k8s.io/v1/storageclasses",
                {
                    "metadata": {
                        "name": "standard",
                        "annotations": {"storageclass.kubernetes.io/is-default-class": "true"},
                    },
                    "provisioner": FAKE_PROVISIONER,
                    "volumeBindingMode": "WaitForFirstConsumer",
                },
            )

    async def start_kubelets(self) -> None:
        mode = ["--exec", "--log-dir", str(self.options.directory / "pods")] if self.options.run_processes else []
        await self._start(
            "node-agent",
            [
                "node-agent",
                "--kubeconfig",
                str(self.options.kubeconfig),
                "--nodes",
                str(self.options.nodes_file),
                *mode,
            ],
        )

    async def start_scheduler(self) -> None:
        arguments = ["scheduler", "--kubeconfig", str(self._kubeconfig_of("scheduler"))]
        for name in self.options.scheduler_names:
            arguments += ["--scheduler-name", name]
        if self.options.policy:
            arguments += ["--config", self.options.policy]
        if self.options.metrics_address:
            arguments += ["--metrics-address", self.options.metrics_address]
        await self._start("scheduler", arguments)

    async def start_webhook(self) -> None:
        """The API server calls it from then on."""
        arguments = ["webhook", "--kubeconfig", str(self._kubeconfig_of("webhook")), "--listen", "127.0.0.1:0"]
        for name in self.options.scheduler_names:
            arguments += ["--scheduler-name", name]
        await self._start("webhook", arguments)

    async def start_controllers(self) -> None:
        arguments = ["controllers", "--kubeconfig", str(self._kubeconfig_of("controllers"))]
        if self.options.scheduler_names:
            arguments += ["--scheduler-name", self.options.scheduler_names[0]]
        await self._start("controllers", arguments)

    async def install(self, *options: str) -> None:
        """`phalanx install` with more than the usual. Raises StartError."""
        await self._once("install", ["install", "--kubeconfig", str(self.options.kubeconfig), *options])

    async def hub_kubeconfig(self) -> Path:
        """The kubeconfig of the account phalanx-hub, after it was installed."""
        await self._issue_token("hub")
        return self._kubeconfig_of("hub")

    async def start_hub(self, *options: str) -> None:
        """It sends gangs to member clusters from then on."""
        await self._start("hub", ["hub", "--kubeconfig", str(await self.hub_kubeconfig()), *options])

    async def start_server(self) -> None:
        """Again, after it was ended: on the same port and with the same objects, where the options name both."""
        await self._start_server()

    @property
    def dashboard_file(self) -> Path:
        return self.options.directory / "dashboard.address"

    async def start_dashboard(self) -> None:
        """With the scheduler's own policy, so that it says what the scheduler would."""
        arguments = ["dashboard", "--kubeconfig", str(self.options.kubeconfig)]
        arguments += ["--address-file", str(self.dashboard_file)]
        for name in self.options.scheduler_names:
            arguments += ["--scheduler-name", name]
        if self.options.policy:
            arguments += ["--config", self.options.policy]
        line = await self._start("dashboard", arguments)
        self.dashboard_address = line.partition(": ")[2].strip()
        child = self._children["dashboard"]
        assert child.stdout is not None
        # Each login is followed by another line: nobody may have to wait because nobody reads them.
        self._reading = asyncio.create_task(_read_to_end(child.stdout))

    async def end(self, name: str, *, kill: bool = False) -> None:
        """Stops one part, orderly or (to show that nothing is lost) at once."""
        child = self._children.pop(name, None)
        if child is None or child.returncode is not None:
            return
        child.send_signal(signal.SIGKILL if kill else signal.SIGTERM)
        try:
            await asyncio.wait_for(child.wait(), _STOP_SECONDS)
        except TimeoutError:
            child.kill()
            await child.wait()

    async def failure(self) -> str:
        """Waits until a part ends by itself, and says which."""
        # (The cluster goes on without a page.)
        parts = {name: child for name, child in self._children.items() if name != "dashboard"}
        waiting = {asyncio.create_task(child.wait()): name for name, child in parts.items()}
        try:
            done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in waiting:
                task.cancel()
        name = waiting[done.pop()]
        return f"{name} ended unexpectedly:\n{self._tail(name)}"

    async def _start_server(self) -> None:
        options = self.options
        arguments = ["apiserver", "--port", str(options.port), "--kubeconfig-out", str(options.kubeconfig)]
        if options.data is not None:
            arguments += ["--data", str(options.data)]
        for namespace, file in options.tenants:
            arguments += ["--tenant", f"{namespace}={file}"]
        await self._start("apiserver", arguments)

    async def _start(self, name: str, arguments: Sequence[str]) -> str:
        """Starts a part and waits for the line in which it says that it is ready, which is returned."""
        child = await self._spawn(name, arguments)
        self._children[name] = child
        assert child.stdout is not None
        try:
            line = await asyncio.wait_for(child.stdout.readline(), _START_SECONDS)
        except TimeoutError:
            raise StartError(f"{name} was not ready after {_START_SECONDS:.0f} s:\n{self._tail(name)}") from None
        if not line:
            await child.wait()
            raise StartError(f"{name} did not start:\n{self._tail(name)}")
        return line.decode("utf-8", "replace")

    async def _once(self, name: str, arguments: Sequence[str]) -> None:
        child = await self._spawn(name, arguments)
        output, _ = await child.communicate()
        if child.returncode:
            raise StartError(f"{name} failed:\n{output.decode()}{self._tail(name)}")

    async def _spawn(self, name: str, arguments: Sequence[str]) -> asyncio.subprocess.Process:
        # Ctrl-C reaches only us: we end the parts in order.
        with (self.options.directory / f"{name}.log").open("ab") as log:
            return await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "phalanx.cli",
                *arguments,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
                start_new_session=True,
                preexec_fn=_ends_with_us(),
            )

    def _tail(self, name: str) -> str:
        try:
            lines = (self.options.directory / f"{name}.log").read_text("utf-8", "replace").splitlines()
        except OSError:
            return ""
        return "\n".join(f"  {line}" for line in lines[-_LOG_TAIL:])


async def _read_to_end(stream: asyncio.StreamReader) -> None:
    while await stream.readline():
        pass
