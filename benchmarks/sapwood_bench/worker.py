"""A child process that runs one engine: JSON lines in, JSON lines out.

Standard output is the protocol's, so whatever the engine prints goes to standard error.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import platform
import sys
from typing import IO, Any


def main() -> None:
    replies = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    module, _, name = sys.argv[1].partition(":")
    try:
        engine = getattr(importlib.import_module(module), name)()
    except ModuleNotFoundError as error:
        _say(replies, {"missing": error.name})
        return
    import numpy

    versions = {"python": platform.python_version(), "numpy": numpy.__version__}
    _say(replies, {"versions": versions | engine.versions()})
    for line in sys.stdin:
        call = json.loads(line)
        # A failed call ends the process with its traceback on standard error.
        answer = getattr(engine, call["method"])(**call["arguments"])
        _say(replies, {"answer": answer})


def _say(replies: IO[str], message: dict[str, Any]) -> None:
    # A parent that stopped listening has already said why.
    with contextlib.suppress(BrokenPipeError):
        replies.write(json.dumps(message) + "\n")


if __name__ == "__main__":
    main()
