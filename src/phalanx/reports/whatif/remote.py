"""What-if question of a command to the page's server, and its answer."""

from __future__ import annotations

import msgspec

from phalanx.reports.whatif.answer import FreeRoom, WhatIfAnswer


class WhatIfCommand(msgspec.Struct, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Options of `phalanx what-if`; `manifest` is the text of all files. Amounts have the form
    `cpu=64,nvidia.com/gpu=8`."""

    namespace: str
    manifest: str = ""
    gang: str = ""
    free: bool = False
    add_nodes: int = 0
    like: str = ""
    without_nodes: list[str] = []
    queue: str = ""
    weight: int = 0
    capability: str = ""
    deserved: str = ""
    priority: int | None = None
    pod: str = ""
    run_time: str = ""
    horizon: str = ""

    @property
    def changes_nodes(self) -> bool:
        return bool(self.add_nodes or self.like or self.without_nodes)

    def options(self) -> list[str]:
        """Return the options of the command line without the manifest. Each `--name=value` is one word, so no value
        is parsed as an option."""
        stated = {
            "gang": self.gang,
            "like": self.like,
            "queue": self.queue,
            "capability": self.capability,
            "deserved": self.deserved,
            "add-nodes": str(self.add_nodes) if self.add_nodes else "",
            "weight": str(self.weight) if self.weight else "",
            "priority": str(self.priority) if self.priority is not None else "",
            "pod": self.pod,
            "for": self.run_time,
            "horizon": self.horizon,
            "namespace": self.namespace,
        }
        words = [f"--{name}={value}" for name, value in stated.items() if value]
        words += [f"--without-nodes={text}" for text in self.without_nodes]
        return [*words, "--free"] if self.free else words


class WhatIfResult(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Answer to a WhatIfCommand: the `room` of a question with `free`, else the `answer`."""

    answer: WhatIfAnswer | None = None
    room: FreeRoom | None = None
