"""Plugin `protection`: cluster-wide protection of pods from eviction. The plugin is active in every policy."""

from __future__ import annotations

from collections.abc import Iterator

from phalanx.model.pod import bound_at
from phalanx.model.text.duration import format_duration
from phalanx.plugin import Arguments, EvictVeto, Plugin, PodRecord, View
from phalanx.scheduling.framework.vocabulary import FOREIGN_VICTIMS

_FIXTURE = EvictVeto("is tied to its node: it would be created again there")


class Protection(Plugin):
    """Veto against evicting pods that no action can evict now.

    - pods tied to their node;
    - pods below the minimum run time of their accounts;
    - pods that the API recently refused to evict;
    - pods of other schedulers, unless the policy includes them.
    """

    name = "protection"
    arguments = (FOREIGN_VICTIMS,)

    def __init__(self, arguments: Arguments) -> None:
        self._foreign = arguments.boolean(FOREIGN_VICTIMS, False)

    def evict_veto(self, session: View, record: PodRecord) -> EvictVeto | None:
        pod = record.pod
        if pod.fixture:
            return _FIXTURE
        if not self._foreign and pod.scheduler not in session.state.schedulers:
            return EvictVeto(f"belongs to scheduler {pod.scheduler}")
        return max(_for_a_time(session, record), key=lambda veto: veto.until or 0.0, default=None)


def _for_a_time(session: View, record: PodRecord) -> Iterator[EvictVeto]:
    since = bound_at(record.pod)
    for account in record.charge_path.path if record.charge_path is not None else ():
        minimum = account.spec.min_run_time if account.spec is not None else 0
        if minimum and since + minimum > session.now:
            span = format_duration(minimum)
            yield EvictVeto(
                f"has run for less than the {span} that {account.label} guarantees", float(since + minimum)
            )
    if record.no_eviction_until > session.now:
        yield EvictVeto("could not be evicted recently", record.no_eviction_until)
