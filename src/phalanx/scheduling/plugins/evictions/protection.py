"""`protection`: pods that objects in the cluster protect from eviction, whatever the policy. No policy names it."""

from __future__ import annotations

from collections.abc import Iterator

from phalanx.model.pod import bound_at
from phalanx.model.text.duration import format_duration
from phalanx.plugin import Arguments, EvictVeto, Plugin, PodRecord, View
from phalanx.scheduling.framework.vocabulary import FOREIGN_VICTIMS

_FIXTURE = EvictVeto("belongs to its node: another would come in its place")


class Protection(Plugin):
    """A veto for what belongs to its node, pods that have not had the minimum run time of their accounts, pods of
    which the API refused the eviction a short while ago, and pods of other schedulers unless the policy says that
    they may go.
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
        least = account.spec.min_run_time if account.spec is not None else 0
        if least and since + least > session.now:
            span = format_duration(least)
            yield EvictVeto(
                f"has not had the {span} yet that {account.label} lets its pods run", float(since + least)
            )
    if record.no_eviction_until > session.now:
        yield EvictVeto("could not be evicted a short while ago", record.no_eviction_until)
