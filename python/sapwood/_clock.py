"""Wall time by phase."""

from __future__ import annotations

import time
from collections.abc import Sequence


class Clock:
    """Each moment belongs to one phase, so that the phases sum to the total. The first phase begins at once."""

    def __init__(self, phases: Sequence[str]) -> None:
        self.seconds = dict.fromkeys(phases, 0.0)
        self._phase = phases[0]
        self._began = self._since = time.perf_counter()

    def enter(self, phase: str) -> None:
        """The present phase ends, and this one begins."""
        now = time.perf_counter()
        self.seconds[self._phase] += now - self._since
        self._phase, self._since = phase, now

    def stop(self) -> float:
        """The last phase ends. Returns the total."""
        self.enter(self._phase)
        return self._since - self._began
