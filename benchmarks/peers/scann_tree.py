"""ScaNN: a tree of leaves, anisotropic product quantisation and exact reordering."""

from __future__ import annotations

import importlib.util
import math
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from sapwood_bench.engine import Matrix, Setting
from sapwood_bench.measure import Phases

from .unit_rows import UnitRows

# Queries that a thread takes at once in a batch: ScaNN's own default.
BATCH = 256


class Scann(UnitRows):
    """Through its pybind module, which unlike the package itself needs neither TensorFlow nor protobuf.

    Options are `leaves_factor`, times the square root of the rows, and `soar`, the weight of second copies, 0 for none;
    a setting has `reorder` and `leaves`.
    """

    package = "scann"

    def __init__(self) -> None:
        super().__init__()
        self.module, self.builder = _modules()
        self.index: Any = None

    def construct(self, phases: Phases, threads: int, options: Setting) -> None:
        rows = len(self.vectors)
        leaves = round(options["leaves_factor"] * math.sqrt(rows))
        sample = min(rows, 100_000)
        measure = "dot_product" if self.inner_product else "squared_l2"
        builder = self.builder.ScannBuilder(self.vectors, 10, measure)
        spill = {"soar_lambda": options["soar"]} if options["soar"] and self.inner_product else {}
        builder.tree(leaves, max(1, leaves // 10), training_sample_size=sample, **spill)
        # Their published settings: two dimensions a code, and the threshold that ranks unit rows best.
        threshold = 0.2 if self.inner_product else math.nan
        builder.score_ah(2, anisotropic_quantization_threshold=threshold, training_sample_size=sample)
        builder.reorder(100)
        self.index = self.module.ScannNumpy(self.vectors, builder.create_config(), threads)
        phases.mark("build")

    def prepare(self, setting: Setting, threads: int) -> None:
        self.reorder, self.leaves = setting["reorder"], setting["leaves"]
        if threads > 1:
            self.index.set_num_threads(threads)
        self.parallel = threads > 1

    def search(self, queries: Matrix, k: int) -> Any:
        reorder = max(self.reorder, k)
        if len(queries) == 1:
            return self.index.search(queries[0], k, reorder, self.leaves)
        return self.index.search_batched(queries, k, reorder, self.leaves, self.parallel, BATCH)


def _modules() -> tuple[ModuleType, ModuleType]:
    """The compiled module and the builder of its configuration, without importing the package round them."""
    package = importlib.util.find_spec("scann")
    if package is None or package.origin is None:
        raise ModuleNotFoundError("No module named 'scann'", name="scann")
    parts = Path(package.origin).parent / "scann_ops"
    sys.path.append(str(parts / "cc" / "python"))
    compiled = importlib.import_module("scann_pybind")
    found = importlib.util.spec_from_file_location("scann_builder", parts / "py" / "scann_builder.py")
    if found is None or found.loader is None:
        raise ModuleNotFoundError("No module named 'scann.scann_ops.py.scann_builder'", name="scann")
    builder = importlib.util.module_from_spec(found)
    found.loader.exec_module(builder)
    return compiled, builder
