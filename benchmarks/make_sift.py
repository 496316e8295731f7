"""Writes sift-like-128.npy and sift-like-128-queries.npy, the rows and queries of `sift-peers`, from a folder of photographs.

    pip install opencv-python-headless
    python benchmarks/make_sift.py PICTURES DIR

SIFT describes small patches of a picture by 128 whole numbers from 0 to 255, as the well-known SIFT1M set does. Rows and queries are of
different pictures: two patches of one picture are often nearly the same, which would make the queries easy. A photograph gives about 2,000
rows, a drawing few; the wallpaper packages of a Linux distribution (mate-backgrounds, gnome-backgrounds, plasma-workspace-wallpapers and
ukui-wallpapers of Debian) together gave 130,000.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

SUFFIXES = {".jpg", ".jpeg", ".png", ".webp", ".tif", ".tiff", ".bmp"}
FILES = ("sift-like-128.npy", "sift-like-128-queries.npy")
# Larger pictures are made smaller: their patches would be grain.
LONGEST_SIDE = 1600
# The last one of so many pictures, in the order of their paths, gives queries: versions of one picture lie side by side.
QUERY_SHARE = 8

Descriptors = NDArray[np.uint8]


def main() -> int:
    parser = argparse.ArgumentParser(description="Write the SIFT rows that sift-peers measures.")
    parser.add_argument("pictures", type=Path, metavar="PICTURES", help="a folder of photographs, with the folders in it")
    parser.add_argument("folder", type=Path, metavar="DIR", help="where the files are written: the --data folder of run.py")
    parser.add_argument("--rows", type=int, default=200_000, help="rows at most (default: %(default)s)")
    parser.add_argument("--query-rows", type=int, default=4_000, help="queries at most (default: %(default)s)")
    options = parser.parse_args()
    try:
        import cv2
    except ImportError:
        print("error: it needs OpenCV: pip install opencv-python-headless", file=sys.stderr)
        return 1
    pictures = sorted(path for path in options.pictures.rglob("*") if path.suffix.lower() in SUFFIXES)
    if len(pictures) < QUERY_SHARE:
        print(f"error: {options.pictures}: expected at least {QUERY_SHARE} pictures, got {len(pictures)}", file=sys.stderr)
        return 1
    described = [_describe(cv2, path) for path in pictures]
    border = len(described) - len(described) // QUERY_SHARE
    rows, queries = described[:border], described[border:]
    options.folder.mkdir(parents=True, exist_ok=True)
    for name, parts, most in ((FILES[0], rows, options.rows), (FILES[1], queries, options.query_rows)):
        taken = _spread(np.concatenate(parts), most)
        np.save(options.folder / name, taken)
        print(f"{options.folder / name}: {len(taken):,} descriptors of {len(parts):,} pictures")
    return 0


def _describe(cv2: Any, path: Path) -> Descriptors:
    """All descriptors of a picture; none of what isn't one."""
    grey = cv2.imread(str(path), cv2.IMREAD_GRAYSCALE)
    none: Descriptors = np.empty((0, 128), np.uint8)
    if grey is None:
        print(f"left out: {path}: not a picture that OpenCV reads", file=sys.stderr)
        return none
    scale = LONGEST_SIDE / max(grey.shape)
    if scale < 1:
        grey = cv2.resize(grey, None, fx=scale, fy=scale, interpolation=cv2.INTER_AREA)
    _, found = cv2.SIFT_create().detectAndCompute(grey, None)
    return none if found is None else np.clip(np.rint(found), 0, 255).astype(np.uint8)


def _spread(rows: Descriptors, most: int) -> Descriptors:
    """Different descriptors, at most so many, drawn at random from all pictures."""
    different = np.unique(rows, axis=0)
    picked = np.random.default_rng(1).permutation(len(different))[:most]
    return different[picked]


if __name__ == "__main__":
    sys.exit(main())
