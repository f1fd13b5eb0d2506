"""The figure: megabytes a second of each engine on each corpus, first pass and warm pass, one row an artifact.

SVG with its text as text, and nothing in it that changes from one drawing to the next: no date, no random ids. It bears
the digest of the results. Needs matplotlib (extra `bench`).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from engines import OURS
from reading import best_rate
from targets import Results, by_engine
from workloads import GROUPS

# One colour an engine in every panel, told apart without colour vision too; ours stands out.
COLOURS = {
    "toktier": "#d55e00", "fastokens": "#0072b2", "gigatoken": "#56b4e9", "basetenkenizer": "#009e73",
    "tiktoken": "#cc79a7", "namesake": "#999999", "tokenizers": "#444444",
}  # fmt: skip
KINDS = {"first": "first pass", "warm": "warm pass"}


def draw(results: Results, digest: str, path: Path) -> None:
    """Writes the figure. `digest`: of the results, written into it."""
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    matplotlib.rcParams.update({"svg.hashsalt": "toktier", "svg.fonttype": "none", "font.size": 8})
    table = {tuple(place.split("/")): (facts, cells) for place, facts, cells in by_engine(results)}
    artifacts = [a for a in results["artifacts"] if any((a, w) in table for w in GROUPS["documents"])]
    workloads = [w for w in GROUPS["documents"] if any((a, w) in table for a in artifacts)]
    engines = [name for name in COLOURS if results["versions"].get(name)]
    rows = max(1, len(artifacts))
    figure, axes = pyplot.subplots(
        rows, 2, figsize=(11, 0.6 + 1.9 * rows), squeeze=False, sharex=True, layout="constrained"
    )
    for row, artifact in enumerate(artifacts):
        for column, kind in enumerate(KINDS):
            panel = axes[row][column]
            _bars(panel, table, artifact, workloads, engines, kind)
            panel.set_title(f"{artifact}, {KINDS[kind]}", loc="left")
            if column == 0:
                panel.set_ylabel("MB/s")
    handles, labels = axes[0][0].get_legend_handles_labels()
    if handles:
        figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), frameon=False)
    figure.savefig(
        path, metadata={"Date": None, "Creator": "benchmarks/drawing.py", "Description": f"results {digest}"}
    )
    pyplot.close(figure)


def _bars(panel: Any, table: Any, artifact: str, workloads: list[str], engines: list[str], kind: str) -> None:
    width = 0.84 / max(1, len(engines))
    for number, engine in enumerate(engines):
        heights = []
        for workload in workloads:
            facts, cells = table.get((artifact, workload), ({}, {}))
            rate = best_rate(cells[engine], kind, facts) if engine in cells else None
            heights.append((rate or 0.0) * 1000)
        at = [place + (number - (len(engines) - 1) / 2) * width for place in range(len(workloads))]
        edge = "black" if engine == OURS else "none"
        panel.bar(at, heights, width, label=engine, color=COLOURS[engine], edgecolor=edge, linewidth=0.5)
    panel.set_xticks(range(len(workloads)), workloads)
    panel.spines[["top", "right"]].set_visible(False)
    panel.grid(axis="y", linewidth=0.3)
    panel.set_axisbelow(True)
