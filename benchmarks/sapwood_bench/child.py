"""Starts engines in their own processes and calls them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Any, Self

BENCHMARKS = Path(__file__).resolve().parent.parent

# Set on some machines to work round old OpenBLAS builds; they slow a current one, and
# would do so to one side of a comparison only.
UNSET = ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE")


class EngineMissing(Exception):
    """A module an engine needs isn't installed."""


class EngineError(Exception):
    """A call failed and its process ended; its traceback is on standard error."""


class Child:
    """One engine in its own process; a context manager that ends it."""

    def __init__(self, engine: str) -> None:
        self._engine = engine
        environment = {k: v for k, v in os.environ.items() if k not in UNSET}
        paths = [str(BENCHMARKS), environment.get("PYTHONPATH", "")]
        environment["PYTHONPATH"] = os.pathsep.join(path for path in paths if path)
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "sapwood_bench.worker", engine],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
            text=True,
        )
        try:
            hello = self._read()
        except EngineError:
            self.close()
            raise
        if "missing" in hello:
            self.close()
            raise EngineMissing(hello["missing"])
        self.versions: dict[str, str] = hello["versions"]

    def call(self, method: str, **arguments: Any) -> dict[str, Any]:
        """Call a method of the engine and wait for its answer."""
        assert self._process.stdin is not None
        call = json.dumps({"method": method, "arguments": arguments})
        self._process.stdin.write(call + "\n")
        self._process.stdin.flush()
        answer: dict[str, Any] = self._read()["answer"]
        return answer

    def _read(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            code = self._process.wait()
            raise EngineError(f"{self._engine}: its process ended with code {code}")
        reply: dict[str, Any] = json.loads(line)
        return reply

    def close(self) -> None:
        """End the process: it stops at the end of its input."""
        assert self._process.stdin is not None and self._process.stdout is not None
        try:
            self._process.stdin.close()
        except BrokenPipeError:
            pass
        try:
            self._process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
