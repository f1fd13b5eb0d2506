"""Runs checks so that one which hangs or crashes is one row, and the others still answer.

A check that has not answered after a quarter of a second goes on beside the next ones, until its own deadline. What is
late is left to its thread, which ends with the process. Foreign code that could hold the interpreter itself (NVML) is
asked in a child process (`gpu_hardware`). Not here: what the checks look at.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from toktier.diagnosis.context import Context
from toktier.diagnosis.model import Check, Code, Finding, Reason, Remedy, Row, Status
from toktier.errors import ConfigInvalid
from toktier.labels import typed

CHECK_SECONDS = 2.0
TOTAL_SECONDS = 5.0
ALONE_SECONDS = 0.25  # how long a check has the host for itself


def run(checks: Sequence[Check], context: Context, total: float = TOTAL_SECONDS) -> list[Row]:
    """One row a check, in the order of `checks`, at most `total` seconds after the call (and a little). With more time
    in all, each check has more, in proportion."""
    end = time.monotonic() + total
    each = max(CHECK_SECONDS, total * CHECK_SECONDS / TOTAL_SECONDS)
    started: list[_Running] = []
    for check in checks:
        running = _Running(check, context, each, end)
        started.append(running)
        if time.monotonic() < end:
            running.thread.start()
            running.thread.join(min(ALONE_SECONDS, max(0.0, running.deadline - time.monotonic())))
    return [running.row() for running in started]


@dataclass
class _Running:
    check: Check
    context: Context
    each: float
    end: float
    begun: float = field(default_factory=time.monotonic)
    answer: tuple[Finding, float] | None = None

    def __post_init__(self) -> None:
        self.deadline = min(self.begun + self.each, self.end)
        self.thread = threading.Thread(target=self._look, name=f"doctor {self.check.id}", daemon=True)

    def _look(self) -> None:
        try:
            finding = self.check.look(self.context)
        except ConfigInvalid as error:
            finding = _without_settings(error)
        except Exception as error:
            finding = _crashed(error)
        self.answer = (finding, time.monotonic())

    def row(self) -> Row:
        if self.thread.ident is not None:
            self.thread.join(max(0.0, self.deadline - time.monotonic()))
        answer = self.answer
        if answer is None:
            allowed = self.deadline - self.begun
            return Row(self.check, _late(allowed, self.check, self.context), round(1000 * max(0.0, allowed)))
        finding, ended = answer
        return Row(self.check, finding, round(1000 * (ended - self.begun)))


def _late(allowed: float, check: Check, context: Context) -> Finding:
    limit = f"{1000 * max(0.0, allowed):.0f} ms"
    home = "" if context.config.home is None else f" --home {typed(context.config.home)}"
    family = "" if context.family is None else f" --family {typed(context.family)}"
    return Finding(
        Status.UNKNOWN,
        f"no answer within {limit}" if allowed > 0 else "not asked: the time for the report had passed",
        reasons=(Reason(Code.CHECK_TIMED_OUT, "no answer", f"an answer within {limit}"),),
        remedy=Remedy("ask it alone, with more time", f"toktier doctor{family}{home} --only {check.id} --timeout 30"),
    )


def _without_settings(error: ConfigInvalid) -> Finding:
    """The row config.settings tells what is wrong; this one could not even be asked."""
    return Finding(
        Status.SKIP,
        "not asked: the settings cannot be read",
        reasons=(Reason(Code.CONFIG_INVALID, error.code, "valid settings"),),
    )


def _crashed(error: Exception) -> Finding:
    """Where it happened and of what type; the values in its message are nobody's business."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    where = "?" if trace is None else f"{os.path.basename(trace.tb_frame.f_code.co_filename)}:{trace.tb_lineno}"
    return Finding(
        Status.FAIL,
        f"the check itself failed: {type(error).__name__} at {where}",
        reasons=(Reason(Code.CHECK_CRASHED, f"{type(error).__name__} at {where}", "an answer"),),
        remedy=Remedy("report it with this row; the other rows hold"),
    )
