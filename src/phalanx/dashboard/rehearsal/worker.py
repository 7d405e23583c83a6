"""Process of the dry runs: it builds a cluster state from events and forks for each dry run.

A dry run changes its state. A fork copies the state at no cost until pages change, so the process receives each
event once. The fork of the last run stays alive until the next run and answers why single gangs wait. Requests
arrive on standard input, answers are written to standard output, each as a length of four bytes and a pickle. Only
the parent process can write there.
"""

from __future__ import annotations

import contextlib
import gc
import os
import pickle
import signal
import sys
import time
from collections.abc import Callable
from typing import Any, BinaryIO

from phalanx.cluster.state import ClusterState
from phalanx.daemon.policy_file import dialect_options, parse_policy
from phalanx.dashboard.rehearsal.messages import (
    REPORT_PARTS,
    Answer,
    AskList,
    AskReport,
    Facts,
    Failed,
    PlannedStart,
    Question,
    Rehearse,
    Rehearsed,
    RehearsedVerdict,
    rehearsed_verdict,
)
from phalanx.dialects.intake import Intake
from phalanx.dialects.registry import installed_dialects
from phalanx.dialects.signatures import Signer
from phalanx.model.gang import GangKey
from phalanx.model.text.decoding import quoted
from phalanx.reports.account_entries import QueueReport
from phalanx.reports.queue_report import report
from phalanx.reports.snapshot import Snapshot
from phalanx.reports.start_entries import StartEntry
from phalanx.reports.start_times import start_entries
from phalanx.reports.turn_entries import OrderReport
from phalanx.reports.turn_order import turn_order
from phalanx.reports.why import WhyReport
from phalanx.reports.why_answer import WhyAnswer
from phalanx.scheduling.framework.policy import Policy
from phalanx.views.gang_state import PlacementForecast

# Time budget in seconds for the search of starts: the page needs current results rather than complete ones.
_START_SECONDS = 3.0


def write_frame(stream: BinaryIO, content: object) -> None:
    data = pickle.dumps(content, protocol=pickle.HIGHEST_PROTOCOL)
    stream.write(len(data).to_bytes(4, "big") + data)
    stream.flush()


def read_frame(stream: BinaryIO) -> Any:
    """Return the next pickled object of a stream. Raises EOFError at the end of the stream."""
    head = stream.read(4)
    if len(head) < 4:
        raise EOFError
    data = stream.read(int.from_bytes(head, "big"))
    return pickle.loads(data)


class Rehearser:
    """Executor of dry runs with the scheduler's `policy`. `schedulers` are the scheduler names of the pods to
    place."""

    def __init__(self, schedulers: tuple[str, ...], policy: Policy) -> None:
        self._policy = policy
        self._schedulers = schedulers
        self.state = ClusterState(schedulers)
        self._last: _Fork | None = None
        self._request: Rehearse | None = None

    def answer(self, request: Rehearse | Question | AskList) -> Answer:
        if not isinstance(request, Rehearse):
            if self._last is None or self._request is None:
                return Failed("the first rehearsal is not complete")
            if isinstance(request, AskList):
                return self._list(request, self._request)
            return self._last.ask(request)
        self.close()
        self._request = request
        begun = time.monotonic()
        gc.freeze()
        counting = _Fork(lambda: self._queues(request))
        self._last = _Fork(lambda: self._verdicts(request))
        try:
            queues, verdicts = counting.result(), self._last.result()
        finally:
            counting.close()
        for result in (queues, verdicts):
            if isinstance(result, Failed):
                return result
        gangs, pods, starts = verdicts
        return Rehearsed(request.now, time.monotonic() - begun, gangs, pods, starts, queues)

    def close(self) -> None:
        if self._last is not None:
            self._last.close()
            self._last = None

    def take_in(self, facts: Facts) -> None:
        for event in facts.events:
            try:
                self.state.apply(event)
            except Exception as error:
                # The event failed alone in the watching process too; later events still apply.
                print(f"rehearsal: skipped an event: {error}", file=sys.stderr)

    def _list(self, question: AskList, request: Rehearse) -> Answer:
        """Return the scheduling order or the starts of all waiting units, from a fork of its own."""
        fork = _Fork(lambda: (self._waiting_units(question, request), None))
        try:
            answer: Answer = fork.result()
        finally:
            fork.close()
        return answer

    # in a fork

    def _waiting_units(self, question: AskList, request: Rehearse) -> OrderReport | list[StartEntry]:
        snapshot, now = self._snapshot(request), question.now
        if question.kind == "order":
            return turn_order(snapshot, self._policy, now, request.promises)
        deadline = time.monotonic() + _START_SECONDS
        return start_entries(snapshot, self._policy, request.promises, now, lambda: time.monotonic() >= deadline)

    def _snapshot(self, request: Rehearse) -> Snapshot:
        options = dialect_options(self._policy)
        intake = Intake(self._schedulers, options, Signer(unchecked=True), dialects=installed_dialects())
        return Snapshot(
            self.state,
            intake,
            list(request.missing),
            request.refused,
            request.disruption_targets,
            request.usages,
        )

    def _queues(self, request: Rehearse) -> tuple[QueueReport, None]:
        return report(self._snapshot(request), self._policy, request.now, request.promises), None

    def _verdicts(self, request: Rehearse) -> tuple[Any, Callable[[Question], Answer]]:
        report = WhyReport(self._snapshot(request), self._policy, request.now, request.promises)
        gangs: dict[GangKey, RehearsedVerdict] = {}
        for key, record in self.state.gangs.items():
            if (gang_verdict := report.gang_verdict(key)) is not None:
                gangs[key] = rehearsed_verdict(gang_verdict)
            elif any(uid in report.bound_to for uid in record.members):
                gangs[key] = RehearsedVerdict(PlacementForecast.STARTS_NOW)
        pods = {}
        for uid, pod in self.state.pods.items():
            if pod.gang is not None:
                continue
            if (pod_verdict := report.pod_verdict(uid)) is not None:
                pods[uid] = rehearsed_verdict(pod_verdict)
            elif uid in report.bound_to:
                pods[uid] = RehearsedVerdict(PlacementForecast.STARTS_NOW)
        deadline = time.monotonic() + _START_SECONDS
        times = report.start_times(lambda: time.monotonic() >= deadline)
        starts = []
        for timed in times.units:
            start = times.start(timed)
            if timed.unit.pod is not None:
                starts.append(PlannedStart(timed.queue, 1, start, None, timed.unit.pod.pod.key))
            starts += [PlannedStart(timed.queue, timed.pods, start, gang.key) for gang in timed.unit.gangs]

        def ask(question: Question) -> Answer:
            if isinstance(question, AskReport):
                return with_start(_part(report, question))
            key = GangKey(question.namespace, question.name)
            answer = report.pod(question.namespace, question.name) if question.pod else report.gang(key)
            return with_start(answer)

        def with_start(answer: WhyAnswer | None) -> WhyAnswer | None:
            if answer is not None and answer.waits:
                namespace, _, gang = answer.gang.partition("/")
                answer.start = times.of(GangKey(namespace, gang) if gang else answer.uid)
            return answer

        return (gangs, pods, starts), ask


class _Fork:
    """Forked process that executes one dry run, returns its result and then answers questions about it."""

    def __init__(self, work: Callable[[], tuple[Any, Callable[[Question], Answer] | None]]) -> None:
        down_read, down_write = os.pipe()
        up_read, up_write = os.pipe()
        self._pid = os.fork()
        if self._pid == 0:
            os.close(down_write)
            os.close(up_read)
            _be_fork(work, os.fdopen(down_read, "rb"), os.fdopen(up_write, "wb"))
        os.close(down_read)
        os.close(up_write)
        self._down, self._up = os.fdopen(down_write, "wb"), os.fdopen(up_read, "rb")

    def result(self) -> Any:
        try:
            return read_frame(self._up)
        except EOFError:
            return Failed("the rehearsal process was killed before its end: check its memory limit")

    def ask(self, question: Question) -> Answer:
        try:
            write_frame(self._down, question)
        except OSError:
            return Failed("the last rehearsal's process ended")
        answer: Answer = self.result()
        return answer

    def close(self) -> None:
        for stream in (self._down, self._up):
            with contextlib.suppress(OSError):
                stream.close()
        os.kill(self._pid, signal.SIGKILL)
        os.waitpid(self._pid, 0)


def _part(report: WhyReport, question: AskReport) -> WhyAnswer | None:
    """Return the answer of one part of the report. Raises ValueError for any other method."""
    if question.part not in REPORT_PARTS:
        raise ValueError(f"unknown part {quoted(question.part)}")
    answer: WhyAnswer | None = getattr(report, question.part)(*question.arguments)
    return answer


def _be_fork(work: Callable[[], Any], down: BinaryIO, up: BinaryIO) -> None:
    """Execute the task of a fork and exit the process."""
    code = 1
    try:
        try:
            result, ask = work()
        except Exception as error:
            write_frame(up, Failed(f"{type(error).__name__}: {error}"))
            raise
        write_frame(up, result)
        while ask is not None:
            question = read_frame(down)
            try:
                answer = ask(question)
            except Exception as error:
                answer = Failed(f"{type(error).__name__}: {error}")
            write_frame(up, answer)
        code = 0
    except (EOFError, BrokenPipeError):
        code = 0
    except BaseException as error:
        print(f"rehearsal: {type(error).__name__}: {error}", file=sys.stderr)
    finally:
        os._exit(code)


def main() -> None:
    """Entry point of `python -m phalanx.dashboard.rehearsal.worker SCHEDULER...`; the first frame is the policy's
    text."""
    # Ctrl-C reaches the whole process group; the parent decides when this process ends.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    requests, answers = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    rehearser = None
    try:
        rehearser = Rehearser(tuple(sys.argv[1:]), parse_policy(read_frame(requests), "policy"))
        while True:
            request = read_frame(requests)
            if isinstance(request, Facts):
                rehearser.take_in(request)
            else:
                write_frame(answers, rehearser.answer(request))
    except (EOFError, BrokenPipeError):
        pass
    finally:
        if rehearser is not None:
            rehearser.close()


if __name__ == "__main__":
    main()
