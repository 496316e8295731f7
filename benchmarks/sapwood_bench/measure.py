"""Clocks, percentiles, resident memory and recall: the same for every engine."""

from __future__ import annotations

import mmap
import re
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

Ids = NDArray[np.int64]


class Phases:
    """Exclusive wall times: each mark ends the phase that the one before began.

    There is no gap between phases, so they sum to the total.
    """

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._start = self._last = time.perf_counter()

    def mark(self, name: str) -> None:
        now = time.perf_counter()
        self.seconds[name] = self.seconds.get(name, 0.0) + now - self._last
        self._last = now

    @property
    def total(self) -> float:
        return self._last - self._start


def memory() -> dict[str, int]:
    """Resident bytes of this process: `now`, and the `peak` since `reset_peak`."""
    status = Path("/proc/self/status").read_text()
    found = dict(re.findall(r"^(VmRSS|VmHWM):\s+(\d+) kB$", status, re.MULTILINE))
    return {"now": int(found["VmRSS"]) * 1024, "peak": int(found["VmHWM"]) * 1024}


def reset_peak() -> None:
    """Let VmHWM start again at the present resident size."""
    Path("/proc/self/clear_refs").write_text("5")


def touch_memory(share: float) -> None:
    """Write once to every page of a share of the free memory, and give it back.

    Memory that a virtual machine was never given before is slow to come, and what a file
    is cached in may be such memory.
    """
    free = re.search(r"^MemFree:\s+(\d+) kB$", Path("/proc/meminfo").read_text(), re.MULTILINE)
    pages = np.empty(int(int(free[1]) * 1024 * share) if free else 0, np.uint8)
    pages[:: mmap.PAGESIZE] = 1


def bytes_written() -> int:
    """Bytes that this process has given to the kernel to write so far."""
    text = Path("/proc/self/io").read_text()
    found = dict(re.findall(r"^(\w+): (\d+)$", text, re.MULTILINE))
    return int(found["wchar"])


def percentile(values: Sequence[float] | NDArray[np.float64], percent: float) -> float:
    """The smallest value that so many per cent of the values don't exceed."""
    return float(np.percentile(values, percent, method="inverted_cdf"))


def median(values: Sequence[float]) -> float:
    return float(np.median(values))


def recall(found: Ids, truth: Ids) -> float:
    """The share of the true ids that were found; `truth` may be wider than `found`.

    Ids are compared, so of several rows at the same distance only one counts.
    """
    k = found.shape[1]
    if len(found) != len(truth) or truth.shape[1] < k:
        raise ValueError(f"found {found.shape} can't be held against {truth.shape}")
    hits = (truth[:, :k, None] == found[:, None, :]).any(axis=2)
    return float(hits.mean())


def clock_jitter(seconds: float) -> float:
    """The longest time this machine kept a busy loop from running, in seconds.

    The part of a worst case that no program could avoid at that moment.
    """
    worst = 0.0
    last = time.perf_counter()
    end = last + seconds
    while last < end:
        now = time.perf_counter()
        worst = max(worst, now - last)
        last = now
    return worst


def slope(values: Sequence[float]) -> float:
    """The change of a value from first to last step on its best straight line."""
    if len(values) < 2:
        return 0.0
    steps = np.linspace(0.0, 1.0, len(values))
    return float(np.polyfit(steps, np.asarray(values, dtype=np.float64), 1)[0])


def between(recalls: Sequence[float], costs: Sequence[float], target: float) -> float:
    """The cost at the target on the straight line between two points; that of the last where they don't enclose it."""
    if len(recalls) < 2 or not recalls[0] < target <= recalls[1]:
        return costs[-1]
    share = (target - recalls[0]) / (recalls[1] - recalls[0])
    return costs[0] + share * (costs[1] - costs[0])
