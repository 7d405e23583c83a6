"""Notices in the usage database: written with their event, sent once, retried, rate-limited."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select

from phalanx.accounting.database import Database
from phalanx.accounting.facts import PodOutcome
from phalanx.accounting.notices import DatabaseOutbox
from phalanx.accounting.promise_watch import LatePromise
from phalanx.accounting.recorder import Recorder
from phalanx.accounting.records import Clock
from phalanx.accounting.retention import pseudonymise
from phalanx.accounting.tables import notices
from phalanx.model.gang import GangKey
from phalanx.notifications.channels import SendError
from phalanx.notifications.delivery import Delivery
from phalanx.notifications.events import NoticeEvent, Subscription
from phalanx.notifications.notice import Notice
from phalanx.notifications.settings import MailChannel, NoticeTarget, Settings, WebhookChannel
from tests.accounting.world import T0, a_pod, changes

HOOK = NoticeTarget("ops", WebhookChannel("http://hooks.example/x", "", "json"), None, 3)
MAIL = NoticeTarget(
    "mail", MailChannel("smtp.example", 25, "none", "p@example.com", "example.com", "", ""), None, 30
)
ALL = tuple(NoticeEvent)
SETTINGS = Settings({"ops": HOOK, "mail": MAIL}, {"research": (Subscription("ops", ALL),)})
MINE = '{"target":"mail","events":["start","end"]}'


class World:
    """Database with a recorder, and a sender whose answers the test decides."""

    def __init__(self, file: Path) -> None:
        self.database = Database(str(file))
        self.database.upgrade()
        self.now = T0
        self.recorder = Recorder(self.database, SETTINGS)
        self.recorder.enable_notices(T0)
        self.sent: list[tuple[str, str, str, str]] = []
        self.ids: list[str] = []
        self.failures: list[Exception] = []
        self.restart()

    def restart(self) -> None:
        async def in_thread(call: Callable[[], Any]) -> Any:
            return call()

        self.delivery = Delivery(SETTINGS, DatabaseOutbox(self.database, in_thread), lambda: self.now, self._send)

    def record(self, now: int, *pods: Any) -> None:
        self.now = T0 + now
        self.recorder.record(changes(*pods), Clock(self.now, True))

    async def _send(self, target: NoticeTarget, notice: Notice, recipient: str) -> None:
        if self.failures:
            raise self.failures.pop(0)
        self.sent.append((target.name, recipient, notice.event, notice.gang))
        self.ids.append(notice.id)

    def deliver(self, now: int | None = None) -> list[tuple[str, str, str, str]]:
        """Return what was sent by this delivery."""
        self.now = T0 + now if now is not None else self.now
        before = len(self.sent)
        asyncio.run(self.delivery.send_due())
        return self.sent[before:]


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path / "accounts.db")
    yield made
    made.database.close()


def pod(**what: Any) -> Any:
    return a_pod("a", queue="research", user="ada", **what)


def test_queue_is_notified_of_start_eviction_and_failure(world: World) -> None:
    world.record(5, pod(bound=T0 + 4))
    assert world.deliver() == [("ops", "", "start", "g")]
    world.record(9, pod(bound=T0 + 4, outcome=PodOutcome.FAILED, ended=T0 + 8))
    assert world.deliver() == [("ops", "", "failure", "g")]
    world.record(20, a_pod("b", queue="research", created=T0 + 15, bound=T0 + 16))
    world.deliver()
    evicted: dict[str, Any] = {"outcome": PodOutcome.EVICTED, "reason": "PreemptionByScheduler", "evicted": T0 + 30}
    world.record(31, a_pod("b", queue="research", created=T0 + 15, bound=T0 + 16, ended=T0 + 31, **evicted))
    assert sorted(event for _, _, event, _ in world.deliver(200)) == ["end", "eviction"]


def test_job_is_notified_of_the_events_that_it_names_only(world: World) -> None:
    own = {"user": "ada", "notify": MINE}
    world.record(5, a_pod("a", bound=T0 + 4, **own))
    assert world.deliver() == [("mail", "ada", "start", "g")]
    world.record(9, a_pod("a", bound=T0 + 4, outcome=PodOutcome.SUCCEEDED, ended=T0 + 8, **own))
    assert world.deliver() == [("mail", "ada", "end", "g")]
    world.record(
        20, a_pod("b", gang="h", user="ada", notify='{"target":"ops","events":["eviction"]}', bound=T0 + 11)
    )
    assert world.deliver() == []


def test_repeated_observation_and_a_restart_send_nothing_twice(world: World) -> None:
    for now in (5, 6, 500):
        world.record(now, pod(bound=T0 + 4))
        world.restart()
        world.deliver(now)
    assert world.sent == [("ops", "", "start", "g")]


def test_notice_is_sent_again_with_its_id_if_the_process_ends_before_it_is_marked(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.record(5, pod(bound=T0 + 4))

    async def crash(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(DatabaseOutbox, "sent", crash)
        with pytest.raises(KeyboardInterrupt):
            world.deliver()
    world.restart()
    assert world.deliver(30) == [], "another process has claimed it"
    assert len(world.deliver(70)) == 1
    assert len(world.ids) == 2
    assert len(set(world.ids)) == 1


def test_events_before_notifications_were_enabled_are_not_sent(world: World) -> None:
    world.record(
        5, a_pod("old", queue="research", created=T0 - 900, bound=T0 - 800, ended=T0 - 1, outcome="Failed")
    )
    assert world.deliver() == []


def test_failed_notice_is_retried_with_growing_pauses(world: World, caplog: pytest.LogCaptureFixture) -> None:
    world.failures = [SendError("no answer", final=False)] * 2
    world.record(5, pod(bound=T0 + 4))
    with caplog.at_level(logging.WARNING):
        assert world.deliver(5) == []
    assert "target ops failed: no answer" in caplog.text
    assert "hooks.example" not in caplog.text
    assert world.deliver(9) == []
    assert world.deliver(10) == []  # the second failure
    assert world.deliver(19) == []
    assert len(world.deliver(20)) == 1


def test_finally_failed_notice_is_dropped(world: World) -> None:
    world.failures = [SendError("HTTP 404", final=True)]
    world.record(5, pod(bound=T0 + 4))
    world.deliver()
    assert world.deliver(5000) == []


def test_notice_is_dropped_after_a_day(world: World) -> None:
    world.record(5, pod(bound=T0 + 4))
    assert world.deliver(90_000) == []
    assert world.deliver(90_100) == []


def test_namespace_cannot_exceed_the_rate_of_a_target_and_nothing_is_lost(world: World) -> None:
    pods = [a_pod(f"p{number}", f"g{number}", queue="research", bound=T0 + 4) for number in range(8)]
    other = a_pod("x", "x", queue="research", namespace="web", bound=T0 + 4)
    world.record(5, *pods, other)
    first = world.deliver(5)
    assert len(first) == HOOK.per_minute + 1
    assert ("ops", "", "start", "x") in first
    assert world.deliver(30) == []
    assert len(world.deliver(66)) + len(world.deliver(130)) + len(world.deliver(200)) == 5


def test_promise_that_is_not_met_is_notified_once(world: World) -> None:
    world.record(5, pod())
    late = [LatePromise(GangKey("ml", "g"), T0 + 100, "NodeLost")]
    for now in (200, 215):
        world.recorder.note_late(late, T0 + now)
        world.deliver(now)
    assert world.sent == [("ops", "", "promise-broken", "g")]
    world.record(300, pod(bound=T0 + 299))
    world.recorder.note_late([LatePromise(GangKey("ml", "g"), T0 + 250, "")], T0 + 301)
    assert [event for _, _, event, _ in world.deliver(301)] == ["start"]


def test_erased_user_has_no_notice(world: World) -> None:
    world.record(5, pod(bound=T0 + 4, outcome=PodOutcome.SUCCEEDED, ended=T0 + 5))
    with world.database.writing() as connection:
        pseudonymise(connection, "ada", T0 + 6)
        assert connection.execute(select(notices)).all() == []
