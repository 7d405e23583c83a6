"""Checks of all enrichers in every test."""

from __future__ import annotations

import pytest

from phalanx.dialects.enricher import PodEnrichers
from phalanx.model.gang import Gang
from phalanx.model.pod import Pod


@pytest.fixture(autouse=True)
def who_is_idle_changes_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """An idle enricher is not called: it must have no effect."""
    asked = PodEnrichers.enriched

    def enriched(self: PodEnrichers, spec: Pod, gang: Gang | None) -> Pod:
        awake = [each.__self__ for each in self._active]  # type: ignore[attr-defined]
        for each in self._enriching:
            assert each in awake or each.enriched(spec, gang) is spec, f"{each} sleeps"
        return asked(self, spec, gang)

    monkeypatch.setattr(PodEnrichers, "enriched", enriched)
