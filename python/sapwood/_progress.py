"""``progress=True``: a bar by tqdm, or one line on stderr without it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any


class Bar:
    """Shows ``(done, total)``; `close` ends the line."""

    def __init__(self, unit: str) -> None:
        self._unit = unit
        self._bar: Any = None
        self._line = False

    def __call__(self, done: int, total: int) -> None:
        tqdm = _tqdm()
        if tqdm is None:
            print(f"\r{done:,} of {total:,} {self._unit}", end="", file=sys.stderr, flush=True)
            self._line = True
            return
        if self._bar is None:
            self._bar = tqdm(total=total, unit=f" {self._unit}", unit_scale=True)
        self._bar.total = total
        self._bar.update(done - self._bar.n)

    def close(self) -> None:
        """End the line."""
        if self._bar is not None:
            self._bar.close()
        elif self._line:
            print(file=sys.stderr)


@contextmanager
def reports(progress: Callable[[int, int], object] | bool | None, unit: str) -> Iterator[Callable[[int, int], object]]:
    """What a call's ``progress=`` asks for, as a function to call; a bar is closed at the end."""
    if progress is None or progress is False:
        yield lambda done, total: None
    elif progress is True:
        bar = Bar(unit)
        try:
            yield bar
        finally:
            bar.close()
    elif callable(progress):
        yield progress
    else:
        raise TypeError(f"progress: expected a callable (done, total), True or None, got {type(progress).__name__}")


def _tqdm() -> Any:
    # Imported at the first report: it isn't needed otherwise, and may be absent.
    try:
        return import_module("tqdm.auto").tqdm
    except ImportError:
        return None
