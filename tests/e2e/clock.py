"""A clock that skips idle time: tests that wait for timers do not wait.

Everything of an end-to-end test runs on one event loop: its API server, its schedulers, the test. Where no task
of that loop can run and no socket has data, nothing happens before the next timer, and the clock advances to
it. While tasks run, the clock advances by the CPU time of this process: other processes of a busy machine cause
no timeout of a test. While a thread or a child process works, its end is unknown and time is real.
"""

from __future__ import annotations

import asyncio
import concurrent.futures.thread
import os
import select
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FunctionType, ModuleType
from typing import Any

_monotonic, _wall, _cpu = time.monotonic, time.time, time.process_time

# Seconds of the clock per second in which the loop looks whether its sockets are silent, and the longest look.
_SPEED, _LONGEST_LOOK = 1000.0, 0.02
# Skipped seconds after which the loop looks on each CPU: fewer than the timeout of any request.
_SKIPPED = 1.0
# How long, in seconds, a loop waits before it looks again whether anything works beside it.
_COMPANY_LOOK = 0.05
_PACKAGES = ("phalanx", "phalanx_local", "tests")


class _Messenger:
    """A connection to this process itself.

    A byte that arrives proves that everything sent before it on the same CPU has arrived: a busy kernel delivers
    loopback traffic late, but in order.
    """

    def __init__(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            self._sender = socket.create_connection(listener.getsockname())
            self._receiver, _ = listener.accept()
        self._sender.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def run(self) -> None:
        self._sender.send(b".")
        self._receiver.recv(1)

    def run_on_each_cpu(self) -> None:
        """Prove it for all CPUs: the kernel may have moved this thread since it sent something."""
        if not hasattr(os, "sched_setaffinity"):
            self.run()
            return
        cpus = os.sched_getaffinity(0)
        try:
            for cpu in sorted(cpus):
                os.sched_setaffinity(0, {cpu})
                self.run()
        finally:
            os.sched_setaffinity(0, cpus)

    def close(self) -> None:
        self._sender.close()
        self._receiver.close()


class Clock:
    """Monotonic and wall time of tests; it is in force within `passing`."""

    def __init__(self) -> None:
        self.in_force = False
        self._source = _monotonic
        self._now, self._since = _monotonic(), _monotonic()
        self._moment, self._begun = 0.0, 0.0
        self._calls: set[asyncio.Future[Any]] = set()
        self._children: list[asyncio.SubprocessTransport] = []
        self._threads: frozenset[threading.Thread] = frozenset()
        self._modules = 0
        self._searched: set[str] = set()
        self._loops: set[asyncio.AbstractEventLoop] = set()

    def monotonic(self) -> float:
        return self._now + self._source() - self._since

    def wall(self) -> float:
        return self._moment + self.monotonic() - self._begun

    @contextmanager
    def passing(self) -> Iterator[None]:
        """Put the clock into force for this process, on the event loop that runs."""
        loop = asyncio.get_running_loop()
        assert isinstance(loop, asyncio.SelectorEventLoop)
        if loop not in self._loops:
            self._loops.add(loop)
            self._follow(loop)
        selector = loop._selector  # type: ignore[attr-defined]
        self._replace_references()
        # Work that began before this test, such as processes of session fixtures, does not count as work of
        # this test.
        self._threads = frozenset(threading.enumerate())
        self._calls.clear()
        self._children.clear()
        # The wall clock begins at the true time: processes that outlive this test see no time ahead of theirs.
        self._moment, self._begun = _wall(), self.monotonic()
        self.in_force = True
        time.monotonic, time.time = monotonic, wall
        messenger = _Messenger()
        selector.select = self._selecting(selector, messenger)
        try:
            yield
        finally:
            del selector.select
            messenger.close()
            time.monotonic, time.time = _monotonic, _wall
            self.in_force = False
            self._count(_monotonic)

    def _follow(self, loop: Any) -> None:
        """Give a loop this clock permanently, as its time must not step back, and count the work beside it."""
        run_in_executor, subprocess_exec = loop.run_in_executor, loop.subprocess_exec

        def run(*arguments: Any) -> Any:
            self._count(_monotonic)
            future = run_in_executor(*arguments)
            self._calls.add(future)
            future.add_done_callback(self._calls.discard)
            return future

        async def start(*arguments: Any, **options: Any) -> Any:
            transport, protocol = await subprocess_exec(*arguments, **options)
            self._children.append(transport)
            return transport, protocol

        loop.time, loop.run_in_executor, loop.subprocess_exec = self.monotonic, run, start

    def _count(self, source: Callable[[], float]) -> None:
        """Advance with this source from now on."""
        if source is not self._source:
            self._now = self.monotonic()
            self._source, self._since = source, source()

    def _accompanied(self) -> bool:
        """Return whether anything works that is not on the loop."""
        self._children = [child for child in self._children if child.get_returncode() is None]
        pools = concurrent.futures.thread._threads_queues
        return bool(
            self._calls
            or self._children
            or any(each not in self._threads and each not in pools for each in threading.enumerate())
        )

    def _selecting(self, selector: Any, messenger: _Messenger) -> Callable[[float | None], Any]:
        wait = selector.select
        skipped = 0.0

        def selecting(timeout: float | None = None) -> Any:
            nonlocal skipped
            ready = wait(0)
            if ready or (timeout is not None and timeout <= 0):
                return ready
            if timeout is None or self._accompanied():
                self._count(_monotonic)
                # The end of a thread does not wake this loop.
                return wait(min(timeout, _COMPANY_LOOK) if timeout is not None else None)
            self._count(_cpu)
            skipped += timeout
            if skipped < _SKIPPED:
                messenger.run()
            else:
                messenger.run_on_each_cpu()
                skipped = 0.0
            select.select([selector.fileno()], [], [], min(timeout / _SPEED, _LONGEST_LOOK))
            ready = wait(0)
            if not ready:
                self._now += timeout
            return ready

        return selecting

    def _replace_references(self) -> None:
        """Let defaults of parameters, and names that modules have imported, be this clock."""
        if len(sys.modules) == self._modules:
            return
        self._modules = len(sys.modules)
        for name, module in list(sys.modules.items()):
            if name.partition(".")[0] in _PACKAGES and name not in self._searched and module is not None:
                self._searched.add(name)
                _replace(module)


def _replace(module: ModuleType) -> None:
    for name, value in list(vars(module).items()):
        if module.__name__ == __name__:
            continue
        if value is _monotonic or value is _wall:
            setattr(module, name, _OURS[value])
        elif isinstance(value, FunctionType):
            _replace_defaults(value)
        elif isinstance(value, type) and value.__module__ == module.__name__:
            for each in vars(value).values():
                function = getattr(each, "__func__", each)
                if isinstance(function, FunctionType):
                    _replace_defaults(function)


def _replace_defaults(function: FunctionType) -> None:
    if function.__defaults__:
        function.__defaults__ = tuple(map(_ours, function.__defaults__))
    if function.__kwdefaults__:
        function.__kwdefaults__ = {name: _ours(value) for name, value in function.__kwdefaults__.items()}


def _ours(value: Any) -> Any:
    return monotonic if value is _monotonic else wall if value is _wall else value


CLOCK = Clock()


def monotonic() -> float:
    return CLOCK.monotonic() if CLOCK.in_force else _monotonic()


def wall() -> float:
    return CLOCK.wall() if CLOCK.in_force else _wall()


_OURS = {_monotonic: monotonic, _wall: wall}


@contextmanager
def passing() -> Iterator[None]:
    """Put the clock into force, but where the API server is a process of its own, or with PHALANX_REAL_TIME=1."""
    if os.environ.get("PHALANX_E2E_KUBECONFIG") or os.environ.get("PHALANX_REAL_TIME"):
        yield
    else:
        with CLOCK.passing():
            yield
