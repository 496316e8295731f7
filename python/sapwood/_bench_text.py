"""What ``python -m sapwood bench`` prints."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .evaluate import Row, Table

if TYPE_CHECKING:
    from .bench import Benched, BenchedCheckpoint


def text(done: Benched) -> str:
    """What `bench` measured."""
    table = Table(tuple(Row(**row) for row in done.table))
    kind = "held out of the base" if done.held_out else "given"
    parts = ", ".join(f"{part} {size:,.0f}" for part, size in done.bytes_a_row.items() if part != "total")
    built = done.seconds["add"] + done.seconds["balance"]
    rate = f", {done.rows / built:,.0f} rows/s" if built > 0 else ""
    lines = [
        f"Sapwood {done.library}: {done.rows:,} rows of {done.dim} values, {done.metric}, {done.storage}; {done.queries:,} queries, {kind}",
        "",
        "One thread, one query a call, against exact search:",
        "",
        *repr(table).splitlines(),
        "",
        *_targets_text(done, done.table, "queries/s"),
        "",
        f"build: {built:.2f} s{rate} on {done.threads} threads",
        f"bytes a row: {done.bytes_a_row['total']:,.0f}: {parts}",
        _phases_text(done),
    ]
    return "\n".join(lines)


def disk_text(done: BenchedCheckpoint) -> str:
    """What `bench_checkpoint` measured."""
    header = ["setting", "cache", f"recall@{done.k}", "queries/s", "p50 ms", "p99 ms", "scanned", "reranked", "kB read", "queries"]
    cells = [header]
    for row in done.table:
        cells.append(
            [
                _shown(row["setting"]),
                row["cache"],
                f"{row['recall']:.4f}",
                f"{row['qps']:,.0f}",
                f"{row['p50_ms']:.3f}",
                f"{row['p99_ms']:.3f}",
            ]
        )
        cells[-1] += [f"{row['scanned']:,.1f}", f"{row['reranked']:,.1f}", f"{row['bytes_read'] / 1e3:,.1f}", f"{row['calls']:,}"]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    warm = [row for row in done.table if row["cache"] == "warm"]
    lines = [
        f"{done.path}: checkpoint {done.version} with {done.rows:,} rows of {done.dim} values, {done.metric}, {done.storage}; "
        f"{done.queries:,} queries",
        "",
        "One thread, one query a call, against exact search of the vectors as they are kept:",
        "",
        *(
            "  ".join([line[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(line[1:], widths[1:], strict=True))])
            for line in cells
        ),
        "",
        *_targets_text(done, warm, "queries/s, warm"),
        "",
        _phases_text(done),
    ]
    return "\n".join(lines)


def _targets_text(done: Benched | BenchedCheckpoint, rows: list[dict[str, Any]], unit: str) -> list[str]:
    """What each target takes."""
    lines = []
    for target, setting in done.reached.items():
        qps = next((row["qps"] for row in rows if row["setting"] == setting), 0.0)
        reached = (
            "not reached with all leaves read; rerank=N would compare more of their rows in full"
            if setting is None
            else f"{_shown(setting)}, {qps:,.0f} {unit}"
        )
        lines.append(f"recall@{done.k} {target}: {reached}")
    return lines


def _phases_text(done: Benched | BenchedCheckpoint) -> str:
    return f"{done.total_seconds:.1f} s: " + ", ".join(f"{phase} {seconds:.2f}" for phase, seconds in done.seconds.items())


def _shown(setting: dict[str, Any]) -> str:
    return " ".join(f"{name}={value}" for name, value in setting.items()) or "default"
