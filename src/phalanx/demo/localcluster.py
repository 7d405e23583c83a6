"""Local cluster: API server, kubelets and scheduler as child processes that communicate over HTTP."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import signal
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from phalanx.accounting.location import with_history
from phalanx.admission.webhook.registration import unregister
from phalanx.demo.local_history import KEPT_DAYS
from phalanx.kube.auth.config import SERVER_EXTENSION, load_config, with_extension
from phalanx.kube.client import KubeClient
from phalanx.kube.core_resources import CONFIG_MAPS
from phalanx.kube.errors import ApiError
from phalanx.reports.aggregated_names import API_SERVICE, API_SERVICES
from phalanx_local.authentication.kubeconfig import write_private
from phalanx_local.controllers.volumes import FAKE_PROVISIONER
from phalanx_local.server import free_port

# Long enough for a slow machine under load; a start takes about 2 s.
_START_SECONDS = 60.0
_STOP_SECONDS = 5.0
_LOG_TAIL = 15
# Service accounts that `phalanx install` creates, and the lifetime of their tokens: longer than any local cluster.
_NAMESPACE = "phalanx-system"
TENANTS_PAGE = "tenants-page"
_ENDED_IN_ORDER = (
    *("hub", TENANTS_PAGE, "dashboard"),
    *("controllers", "scheduler", "webhook", "node-agent", "apiserver"),
)
_ACCOUNTS = ("scheduler", "controllers", "webhook")
_TOKEN_SECONDS = 365 * 24 * 3600
_PR_SET_PDEATHSIG = 1  # linux/prctl.h


def _ends_with_us() -> Callable[[], None] | None:
    """Return a function that lets a child receive SIGTERM when this process is killed; None outside Linux."""
    if sys.platform != "linux":
        return None
    library = ctypes.CDLL(None, use_errno=True)

    def set_death_signal() -> None:
        library.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)

    return set_death_signal


class StartError(Exception):
    """Failure to start a part of the cluster; the text includes the end of its log."""


class LocalOptions(msgspec.Struct, frozen=True):
    """Options of a local cluster.

    `directory` receives the kubeconfig and one log per process. `nodes_file` is watched while the cluster runs. The
    default `scheduler_names` include Kubernetes' default, because no other scheduler runs. `tenants` are namespaces
    with the kubeconfigs of their editors; with `aggregated` their page serves the aggregated API, and they get
    kubeconfigs with client certificates too. With `webhook` jobs, queues and groups are defaulted and validated at
    admission. With `dashboard` the page is served with the administrator's rights. With `history` usage is recorded
    in this SQLite file.
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
    history: Path | None = None
    tenants: tuple[tuple[str, Path], ...] = ()
    aggregated: bool = False
    scheduler_names: tuple[str, ...] = ("phalanx", "default-scheduler", "volcano")


def unused_port() -> int:
    """Return a port without a listener."""
    return free_port()


class LocalCluster:
    """Local cluster of processes.

    Its parts are `apiserver`, `node-agent`, `scheduler`, `controllers`, optionally `webhook`, `accounting`,
    `dashboard`, `tenants-page`, `hub`.

    `dashboard_address` opens the page once, "" for none; the address for later logins is in `dashboard_file`.
    `tenants_address` is the page on which tenants log in with their tokens, "" without tenants.
    `history_failure` is the reason why usage is not recorded, "" if it is, or if no file is given for it.
    """

    def __init__(self, options: LocalOptions) -> None:
        self.options = options
        self.client: KubeClient
        self.dashboard_address = self.tenants_address = ""
        self.history_failure = ""
        self._tenants_url = f"http://127.0.0.1:{unused_port()}" if options.tenants else ""
        self._aggregated_address = f"127.0.0.1:{unused_port()}" if options.aggregated else ""
        self._reading: list[asyncio.Task[None]] = []
        self._children: dict[str, asyncio.subprocess.Process] = {}

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[LocalCluster]:
        """Run the cluster inside the context. Raises StartError."""
        options = self.options
        options.directory.mkdir(parents=True, exist_ok=True)
        try:
            await self._start_server()
            published = ["--dashboard-url", self._tenants_url] if options.tenants else []
            if options.aggregated:
                published += ["--aggregated-api", "--aggregated-address", self._aggregated_address]
            await self.install(*published)
            async with KubeClient(load_config(str(options.kubeconfig))) as self.client:
                await asyncio.gather(*map(self._issue_token, _ACCOUNTS))
                if not options.aggregated:
                    await self._withdraw(API_SERVICES.path(None, API_SERVICE))
                if options.webhook:
                    await self.start_webhook()
                else:
                    await unregister(self.client)  # the API server would wait for a webhook of an earlier run
                await asyncio.gather(
                    self.start_kubelets(), self.start_scheduler(), self.start_controllers(), self._start_history()
                )
                await self._offer_storage()
                if options.dashboard:
                    await self.start_dashboard()
                if options.tenants:
                    await self.start_tenants_page()
                else:
                    await self._withdraw(CONFIG_MAPS.path("kube-public", "phalanx"))
                self._name_server()
                yield self
        finally:
            for name in (
                "hub",
                TENANTS_PAGE,
                "dashboard",
                "accounting",
                "controllers",
                "scheduler",
                "webhook",
                "node-agent",
                "apiserver",
            ):
                await self.end(name)

    async def _issue_token(self, name: str) -> None:
        """Write the kubeconfig of a part with the token of its own service account and rights."""
        path = f"/api/v1/namespaces/{_NAMESPACE}/serviceaccounts/phalanx-{name}/token"
        issued = await self.client.create(path, {"spec": {"expirationSeconds": _TOKEN_SECONDS}})
        config = msgspec.json.decode(self.options.kubeconfig.read_bytes())
        config["users"][0]["user"] = {"token": issued["status"]["token"]}
        write_private(self._kubeconfig_of(name), config)

    def _kubeconfig_of(self, name: str) -> Path:
        return self.options.directory / f"{name}.kubeconfig"

    async def _offer_storage(self) -> None:
        """Create a default StorageClass, so that claims without a class get volumes when their pods are placed."""
        with contextlib.suppress(ApiError):  # it exists if the data are from an earlier run
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
        """Start the webhook; the API server calls it from then on."""
        arguments = ["webhook", "--kubeconfig", str(self._kubeconfig_of("webhook")), "--listen", "127.0.0.1:0"]
        for name in self.options.scheduler_names:
            arguments += ["--scheduler-name", name]
        await self._start("webhook", arguments)

    async def start_controllers(self) -> None:
        arguments = ["controllers", "--kubeconfig", str(self._kubeconfig_of("controllers"))]
        if self.options.scheduler_names:
            arguments += ["--scheduler-name", self.options.scheduler_names[0]]
        await self._start("controllers", arguments)

    async def _start_history(self) -> None:
        """Start the recorder of usage, and name its database in the kubeconfig, where commands find it. The cluster
        works without it."""
        file = self.options.history
        if file is None:
            return
        arguments = ["accounting", "run", "--kubeconfig", str(self.options.kubeconfig)]
        arguments += ["--database", str(file), "--keep", f"{KEPT_DAYS}d"]
        for name in self.options.scheduler_names:
            arguments += ["--scheduler-name", name]
        if self.options.policy:
            arguments += ["--config", self.options.policy]
        try:
            await self._start("accounting", arguments)
        except StartError as error:
            self.history_failure = str(error)
            return
        config = msgspec.json.decode(self.options.kubeconfig.read_bytes())
        write_private(self.options.kubeconfig, with_history(config, file))

    async def install(self, *options: str) -> None:
        """Run `phalanx install` with further options. Raises StartError."""
        await self._once("install", ["install", "--kubeconfig", str(self.options.kubeconfig), *options])

    async def hub_kubeconfig(self) -> Path:
        """Return the kubeconfig of the account phalanx-hub, which must be installed."""
        await self._issue_token("hub")
        return self._kubeconfig_of("hub")

    async def start_hub(self, *options: str) -> None:
        """Start the hub; it dispatches gangs to member clusters from then on."""
        await self._start("hub", ["hub", "--kubeconfig", str(await self.hub_kubeconfig()), *options])

    async def start_server(self) -> None:
        """Start an ended API server again, on the same port and with the same objects if the options name both."""
        await self._start_server()

    @property
    def dashboard_file(self) -> Path:
        return self.options.directory / "dashboard.address"

    async def start_dashboard(self) -> None:
        """Start the dashboard with the scheduler's own policy, so that its answers match the scheduler's."""
        self.dashboard_address = await self._start_page(
            "dashboard", "--address-file", str(self.dashboard_file), "--writes"
        )

    async def start_tenants_page(self) -> None:
        """Start the page on which tenants log in with their tokens, whose address their commands
        find in the cluster."""
        arguments = ["--login", "token", "--listen", urlsplit(self._tenants_url).netloc]
        if self._aggregated_address:
            arguments += ["--aggregated-api", self._aggregated_address]
        self.tenants_address = await self._start_page(TENANTS_PAGE, *arguments)

    def _name_server(self) -> None:
        """Name a page in the administrator's kubeconfig, so that commands ask it instead of planning themselves."""
        if url := self.dashboard_address.partition("/#")[0] or self.tenants_address:
            config = msgspec.json.decode(self.options.kubeconfig.read_bytes())
            write_private(self.options.kubeconfig, with_extension(config, SERVER_EXTENSION, {"url": url}))

    async def _withdraw(self, path: str) -> None:
        """Delete the published address of an earlier run with the same data: nothing answers there now."""
        with contextlib.suppress(ApiError):
            await self.client.delete(path)

    async def _start_page(self, part: str, *options: str) -> str:
        """Start a page and return its address."""
        arguments = ["dashboard", "--kubeconfig", str(self.options.kubeconfig), *options]
        for name in self.options.scheduler_names:
            arguments += ["--scheduler-name", name]
        if self.options.policy:
            arguments += ["--config", self.options.policy]
        if self.options.history is not None and not self.history_failure:
            arguments += ["--database", str(self.options.history)]
        line = await self._start(part, arguments)
        child = self._children[part]
        assert child.stdout is not None
        # Each login prints a line: the page would block if the pipe were not read.
        self._reading.append(asyncio.create_task(_read_to_end(child.stdout)))
        return line.partition(": ")[2].strip()

    async def end(self, name: str, *, kill: bool = False) -> None:
        """Stop one part, in order or (to show that no data are lost) by a kill."""
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
        """Return a message about the first part that ends by itself."""
        # The cluster works without a page and without history.
        optional = ("dashboard", TENANTS_PAGE, "accounting")
        parts = {name: child for name, child in self._children.items() if name not in optional}
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
        if options.aggregated:
            arguments.append("--tenant-certificates")
        await self._start("apiserver", arguments)

    async def _start(self, name: str, arguments: Sequence[str]) -> str:
        """Start a part and return its first line, which it prints when it is ready."""
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
        # Ctrl-C reaches only this process: it ends the parts in order.
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
