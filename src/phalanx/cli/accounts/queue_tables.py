"""Tables, trees and details of queues and quotas on the command line."""

from __future__ import annotations

from collections.abc import Sequence

from phalanx.cli.columns import bar, brief, columns, fields, percent, rounded, spoken, without_slots
from phalanx.cli.jobs.starts import start_lines
from phalanx.cli.listing.ages import promised_moment
from phalanx.reports.account_entries import AccountEntry, Counts, FirstWaiting, QueueEntry, QueueReport, QuotaEntry

_BAR = 24
_LEGEND = "█ own share, used   ▓ borrowed   ░ own share, unused   · rest of the cluster"


def queue_table(report: QueueReport, wide: bool, now: float) -> list[str]:
    header = [
        "NAME",
        "STATE",
        "WEIGHT",
        "DESERVED",
        "USED",
        "SHARE",
        "PENDING",
        "GANGS",
        "BORROWED",
        "START",
        "WAITS FOR",
    ]
    if wide:
        header[3:3] = ["PRIORITY", "PARENT", "GUARANTEE", "CAPABILITY"]
        header[-1:] = ["FROM", "LENT", "PAST", "PODS", "FIRST", "WAITS FOR"]
    rows = []
    for entry in report.queues:
        resources = _relevant_resources(entry, entry.guarantee, entry.capability)
        row = [
            entry.name,
            state(entry),
            str(entry.weight),
            brief(entry.deserved, resources or None),
            brief(without_slots(entry.used)),
            percent(entry.share),
            brief(without_slots(entry.pending)),
            _counts(entry.gangs),
            brief(entry.borrowed, resources),
            _start(entry.first, now),
            _reason(entry.first),
        ]
        if wide:
            row[3:3] = [str(entry.priority), entry.parent, brief(entry.guarantee), brief(entry.capability)]
            partners = _partners(entry, ",") if entry.borrowed else ""
            past = percent(entry.past) if entry.past is not None else ""
            first = entry.first.name if entry.first else ""
            row[-1:] = [partners, brief(entry.lent), past, _counts(entry.pods), first, _sentence(entry.first)]
        rows.append(row)
    return [*columns(header, rows), *_faults(report.queues)]


def quota_table(report: QueueReport, wide: bool) -> list[str]:
    if not report.quotas:
        return ["no quotas: the cluster has no ElasticQuota and no ElasticQuotaTree"]
    runtime = any(entry.runtime for entry in report.quotas)
    header = ["NAME", "FAMILY", "MIN", "MAX", "USED", "BORROWED", "LENT", "PENDING", "WAITS FOR"]
    if runtime:
        header.insert(4, "RUNTIME")
    if wide:
        header[2:2] = ["TREE", "PARENT", "NAMESPACES"]
        header[-1:] = ["FROM/TO", "SHARE", "GANGS", "PODS", "FIRST", "WAITS FOR"]
    rows = []
    for entry in report.quotas:
        resources = {*entry.min, *entry.max}
        row = [
            entry.name,
            entry.family + (" (fault)" if entry.fault else ""),
            brief(entry.min),
            brief(entry.max),
            brief(entry.used, resources or None),
            brief(entry.borrowed),
            brief(entry.lent),
            brief(entry.pending, resources or None),
            _reason(entry.first),
        ]
        if runtime:
            row.insert(4, brief(entry.runtime))
        if wide:
            row[2:2] = [entry.tree, entry.parent, ",".join(entry.namespaces)]
            first = entry.first.name if entry.first else ""
            row[-1:] = [
                _partners(entry, ","), percent(entry.share), _counts(entry.gangs), _counts(entry.pods), first,
                _sentence(entry.first),
            ]  # fmt: skip
        rows.append(row)
    return [*columns(header, rows), *_faults(report.quotas)]


def queue_tree(report: QueueReport) -> list[str]:
    notes = [f"weight {entry.weight}" if entry.parent else "" for entry in report.queues]
    return _tree(report.queues, [_deserved(entry) for entry in report.queues], "DESERVED", notes)


def quota_tree(report: QueueReport) -> list[str]:
    if not report.quotas:
        return ["no quotas: the cluster has no ElasticQuota and no ElasticQuotaTree"]
    rights = [f"{_of(entry.min, entry)} / {_of(entry.max, entry)}" for entry in report.quotas]
    notes = ["" if entry.depth else entry.family for entry in report.quotas]
    return _tree(report.quotas, rights, "MIN / MAX", notes)


def describe_queue(entry: QueueEntry, now: float) -> list[str]:
    pairs = [
        ("Name", entry.name),
        ("Parent", entry.parent),
        ("State", state(entry)),
        ("Weight", str(entry.weight)),
        ("Priority", str(entry.priority)),
        ("Reclaimable", "yes" if entry.reclaimable else "no"),
        *_shares(entry, "entitled to"),
        ("Share over time", percent(entry.past) if entry.past is not None else "not recorded by this policy"),
        *_budget(entry),
        *_protection(entry),
        *_problems(entry),
    ]
    amounts = {
        "GUARANTEE": entry.guarantee,
        "DESERVED": entry.deserved,
        "ENTITLED": entry.entitled,
        "CAPABILITY": entry.capability,
        **_sums(entry),
    }
    lines = [*fields(pairs), "", *_amounts(amounts), *_limits(entry), *_loan(entry)]
    if entry.tenants:
        header = ["KIND", "NAME", "WEIGHT", "SHARE", "PAST", "USED", "PENDING", "WAITS FOR"]
        rows = [
            [
                tenant.kind,
                tenant.name,
                str(tenant.weight),
                percent(tenant.share),
                percent(tenant.past) if tenant.past is not None else "",
                brief(without_slots(tenant.used)),
                brief(without_slots(tenant.pending)),
                f"{_reason(tenant.first)} ({tenant.first.name})" if tenant.first else "",
            ]
            for tenant in entry.tenants
        ]
        lines += ["", "Tenants:", *_indented(columns(header, rows))]
    return lines + _first(entry, now)


def describe_quota(entry: QuotaEntry, now: float) -> list[str]:
    pairs = [
        ("Name", entry.name),
        ("Family", entry.family),
        *([("Tree", entry.tree)] if entry.tree else []),
        ("Parent", entry.parent),
        ("Namespaces", ", ".join(entry.namespaces)),
        ("Lends", "yes, its unused amount" if entry.lends else "no: its min stays reserved"),
        *_shares(entry, "its min is"),
        *_budget(entry),
        *_protection(entry),
        *_problems(entry),
    ]
    amounts = {"MIN": entry.min, "MAX": entry.max, **({"RUNTIME": entry.runtime} if entry.runtime else {})}
    return [
        *fields(pairs),
        "",
        *_amounts(amounts | _sums(entry)),
        *_limits(entry),
        *_loan(entry),
        *_first(entry, now),
    ]


def state(entry: QueueEntry) -> str:
    """Return the state of a queue; for an open queue whose declaration has a fault with the mark "(fault)"."""
    is_closed = entry.state in ("Closed", "Closing")
    return entry.state if is_closed or not entry.fault else f"{entry.state} (fault)"


def _tree(entries: Sequence[AccountEntry], rights: Sequence[str], word: str, notes: Sequence[str]) -> list[str]:
    rows = []
    for entry, branch, right, note in zip(entries, _branches(entries), rights, notes, strict=True):
        remark = "; ".join(filter(None, [note, *_remarks(entry)]))
        shown = bar(entry.share, max(entry.own_share, entry.share - entry.borrowed_share), _BAR)
        rows.append([branch + entry.name, shown, percent(entry.share), _of(entry.used, entry), right, remark])
    # A blank keeps a cell empty: an empty string prints as <none>.
    filled = [[cell or " " for cell in row] for row in rows]
    return [*columns(["NAME", "SHARE OF THE CLUSTER", "", "USED", word, "NOTES"], filled), "", _LEGEND]


def _branches(entries: Sequence[AccountEntry]) -> list[str]:
    """Return the lines of the tree drawing before each queue's name; entries are sorted parents first."""
    branches: list[str] = []
    open_below: dict[int, bool] = {}
    for entry in reversed(entries):
        depth = entry.depth
        stem = "".join("│  " if open_below.get(level) else "   " for level in range(1, depth))
        branches.append(stem + ("├─ " if open_below.get(depth) else "└─ ") if depth else "")
        open_below = {level: more for level, more in open_below.items() if level < depth} | {depth: True}
    return branches[::-1]


def _remarks(entry: AccountEntry) -> list[str]:
    remarks = []
    if entry.borrowed:
        source = f" from {_partners(entry)}" if entry.partners else " of unclaimed resources"
        remarks.append(f"borrows {_of(entry.borrowed, entry)}{source}")
    if entry.lent:
        remarks.append(f"lends {_of(entry.lent, entry)} to {_partners(entry)}")
    if entry.pods.pending:
        remarks.append(f"{entry.pods.pending} pod{'s' if entry.pods.pending > 1 else ''} pending")
    if entry.first is not None and not entry.fault:
        remarks.append(f"waits: {entry.first.reason}")
    if entry.fault:
        remarks.append(f"! {entry.fault}")
    return remarks + [f"! {warning}" for warning in entry.warnings]


def _of(amounts: dict[str, str], entry: AccountEntry) -> str:
    """Format the amount of the queue's dominant resource, or all amounts if the dominant resource is not among
    them."""
    if entry.dominant in amounts:
        return f"{rounded(entry.dominant, amounts[entry.dominant])} {entry.dominant.rpartition('/')[2]}"
    return brief(without_slots(amounts)) or "-"


def _deserved(entry: QueueEntry) -> str:
    return _of(entry.deserved or entry.guarantee, entry)


def _relevant_resources(entry: AccountEntry, *declared: dict[str, str]) -> set[str]:
    """Return the resources that the queue or quota uses, requests or declares."""
    named = {name for amounts in declared for name in amounts}
    return named | without_slots(entry.used).keys() | without_slots(entry.pending).keys()


def _shares(entry: AccountEntry, own: str) -> list[tuple[str, str]]:
    share = f"{percent(entry.share)} of the cluster's {entry.dominant}; {own} {percent(entry.own_share)}"
    return [("Share", share), ("Gangs", _both(entry.gangs)), ("Pods", _both(entry.pods))]


def _sums(entry: AccountEntry) -> dict[str, dict[str, str]]:
    return {
        "USED": entry.used,
        "RUNNING": entry.running,
        "PENDING": entry.pending,
        "BORROWED": entry.borrowed,
        "LENT": entry.lent,
    }


def _amounts(sums: dict[str, dict[str, str]]) -> list[str]:
    """Format sums of resources as a table with one line per resource."""
    resources = sorted({name for amounts in sums.values() for name in amounts})
    rows = [
        [name, *(rounded(name, amounts[name]) if name in amounts else "-" for amounts in sums.values())]
        for name in resources
    ]
    return columns(["RESOURCE", *sums], rows) if rows else ["no amounts declared, used or requested"]


def _limits(entry: AccountEntry) -> list[str]:
    if not entry.ceilings:
        return []
    return [
        "",
        "Current limits:",
        *(f"  {limit.word}: {spoken(limit.limits)}" for limit in entry.ceilings),
    ]


def _loan(entry: AccountEntry) -> list[str]:
    lines = []
    if entry.borrowed:
        source = _partners(entry) if entry.partners else "unclaimed resources"
        lines += ["", f"Borrows {spoken(entry.borrowed)} from {source}"]
    if entry.lent:
        lines += ["", f"Lends {spoken(entry.lent)} to {_partners(entry)}"]
    return lines


def _partners(entry: AccountEntry, comma: str = ", ") -> str:
    more = f" and {entry.further_partners} more" if entry.further_partners else ""
    return comma.join(entry.partners) + more


def _first(entry: AccountEntry, now: float) -> list[str]:
    first = entry.first
    if first is None:
        return ["", "Waiting: none"]
    change = [f"  Fix: {first.change}"] if first.change else []
    start = [f"  {line}" for line in start_lines(first.start, now)] if first.start is not None else []
    return ["", f"First waiting: {first.name} ({first.reason})", f"  {first.message}", *start, *change]


def _start(first: FirstWaiting | None, now: float) -> str:
    """Return the promised start of the first waiting gang or pod of a queue."""
    return promised_moment(first.start.no_later_than, now) if first and first.start else ""


def _budget(entry: AccountEntry) -> list[tuple[str, str]]:
    budget = entry.budget
    if budget is None:
        return []
    spent = ", ".join(f"{budget.spent[name]} of {cap} {name} hours" for name, cap in budget.hours.items())
    return [("Budget", f"{spent} used in the {budget.window} until {budget.ends}")]


def _protection(entry: AccountEntry) -> list[tuple[str, str]]:
    pairs = []
    if entry.min_run_time:
        pairs.append(("Protected for", f"{entry.min_run_time} after a pod is bound"))
    if entry.eviction_rate:
        pods, _, window = entry.eviction_rate.partition("/")
        pairs.append(("Evictions", f"at most {pods} pods within {window}"))
    limit = f" for at most {entry.max_protection_time} after a pod is bound" if entry.max_protection_time else ""
    if entry.self_protection or limit:
        pairs.append(("Self-protection", f"{entry.self_protection or 'inherited'}{limit}"))
    return pairs


def _problems(entry: AccountEntry) -> list[tuple[str, str]]:
    problems = [("Fault", entry.fault)] if entry.fault else []
    return problems + ([("Warnings", "\n".join(entry.warnings))] if entry.warnings else [])


def _faults(entries: Sequence[AccountEntry]) -> list[str]:
    faults = [(entry.name, text) for entry in entries for text in (entry.fault, *entry.warnings) if text]
    return ["", *(f"! {name}: {text}" for name, text in faults)] if faults else []


def _reason(first: FirstWaiting | None) -> str:
    return first.reason if first is not None else ""


def _sentence(first: FirstWaiting | None) -> str:
    if first is None:
        return ""
    return f"{first.reason}: {first.message}" + (f" ({first.change})" if first.change else "")


def _counts(counts: Counts) -> str:
    return f"{counts.running}/{counts.pending}"


def _both(counts: Counts) -> str:
    return f"{counts.running} running, {counts.pending} pending"


def _indented(lines: list[str]) -> list[str]:
    return [f"  {line}" for line in lines]
