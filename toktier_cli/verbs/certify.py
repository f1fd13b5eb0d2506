"""`toktier certify`: compares a backend with the reference, and writes evidence of it."""

from __future__ import annotations

import math
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from toktier.errors import ArtifactNotFound, ConfigInvalid, EnvironmentFault, ExitCode, UsageError
from toktier.labels import shown, shown_path, typed
from toktier.routing.vocabulary import THIRD_PARTY, Compared
from toktier_cli import options
from toktier_cli.invocation import Invocation, Result
from toktier_cli.progress import Progress

if TYPE_CHECKING:
    from toktier.certify.checkpoint import Checkpoint
    from toktier.certify.levels import Level
    from toktier.certify.plan import Prepared
    from toktier.certify.runner import Report
    from toktier.certify.subject import Subject

RUNS = "certify"  # of the state directory

Junit = Annotated[str | None, typer.Option("--junit", metavar="FILE", help="A copy of junit.xml.")]
Summary = Annotated[str | None, typer.Option("--summary", metavar="FILE", help="A copy of summary.md.")]
Out = Annotated[str | None, typer.Option("--out", metavar="DIR", help="The run directory, new or empty.")]
Corpus = Annotated[
    list[str] | None, typer.Option("--corpus", metavar="PATH", help="Files, directories, JSONL; may be repeated.")
]
Driver = Annotated[str | None, typer.Option("--driver", metavar="LIB", help="The driver library that is the emulator.")]
MaxFailures = Annotated[
    int, typer.Option("--max-failures", metavar="N", help="Differences to minimise and keep.", min=0, max=10_000)
]


def run(
    ctx: typer.Context,
    family: Annotated[str | None, typer.Argument(metavar="[FAMILY|FILE]", show_default=False)] = None,
    backend: Annotated[str | None, typer.Option(metavar="BACKEND", help=options.one_of(*Compared))] = None,
    driver: Driver = None,
    suite: Annotated[list[str] | None, typer.Option(metavar="SUITE", help="Only this one; may be repeated.")] = None,
    level: Annotated[str | None, typer.Option(metavar="LEVEL", help="quick (default), standard or exhaustive.")] = None,
    corpus: Corpus = None,
    shard: Annotated[str | None, typer.Option(metavar="K/N", help="Only this part; merge makes evidence.")] = None,
    resume: Annotated[str | None, typer.Option(metavar="DIR", help="Go on with the run in this directory.")] = None,
    time_budget: Annotated[
        float | None, typer.Option(metavar="SECONDS", help="Begin no block after this; --resume goes on.", min=0)
    ] = None,
    seed: Annotated[int | None, typer.Option(metavar="N", help="Of what is random; 0.", min=0, max=2**53 - 1)] = None,
    workers: Annotated[int, typer.Option(metavar="N", help="Processes; 0: one a core.", min=0, max=256)] = 0,
    out: Out = None,
    junit: Junit = None,
    summary: Summary = None,
    max_failures: MaxFailures = 20,
) -> Result:
    """Compare a backend with the reference and write evidence.

    Exit code 0: all agreed. 1: something differed. 6: incomplete, --resume DIR goes on.
    """
    from toktier.certify.runner import RunOptions
    from toktier.certify.runner import run as run_plan

    started = time.monotonic()
    invocation: Invocation = ctx.obj
    if time_budget is not None and not math.isfinite(time_budget):
        raise UsageError(f"--time-budget {time_budget} is no number of seconds", remedy="leave it out for no bound")
    for file in (junit, summary):
        _require_place(file)
    given = {"--backend": backend, "--driver": driver, "--suite": suite, "--level": level, "--corpus": corpus,
             "--shard": shard, "--seed": seed, "--out": out}  # fmt: skip
    if resume is not None:
        prepared, state = _resumed(invocation, Path(resume), family, given)
    elif family is None:
        raise UsageError(
            "no tokenizer given: expected FAMILY, FILE or --resume DIR", remedy="toktier artifacts list --available"
        )
    else:
        prepared, state = _begun(invocation, family, (backend, driver), suite, level, corpus, shard, seed, out)
    watch = Watch(invocation, len(state.missing))
    try:
        report = run_plan(
            prepared,
            state,
            RunOptions(workers=workers, time_budget=time_budget, started=started, max_failures=max_failures),
            watch,
        )
    finally:
        watch.close()
    return finished(invocation, report, junit, summary, _kept(invocation, report, state.target.get("host")))


def _require_place(file: str | None) -> None:
    """Raises now what would be found after the run: no directory, or something there that is no file to replace."""
    if file is None:
        return
    path = Path(file)
    if not path.parent.is_dir() or (path.exists() and not path.is_file()):
        problem = "is no regular file" if path.parent.is_dir() else "is in a directory that does not exist"
        raise UsageError(
            f"{shown_path(path)} {problem}", details={"path": file}, remedy="name a file that may be written"
        )


def _kept(invocation: Invocation, report: Report, host: Any) -> Path | None:
    """Keeps the evidence of a whole pass, which the default policy then believes on this host; None for another run.
    `host`: where the run was begun; results that another host brought are data."""
    from toktier.certify.checkpoint import BLOCKS, PLAN
    from toktier.certify.outcome import Outcome
    from toktier.certify.suites import SUITES
    from toktier.evidence import local
    from toktier.program.trust import only_owner_writes

    if report.evidence is None or report.outcome is not Outcome.PASSED:
        return None
    if report.plan.document["backend"] == Compared.EMULATOR:
        invocation.note("evidence of the emulator is believed nowhere: it says what the kernels do, and of no device")
        return None
    if report.plan.document["backend"] in THIRD_PARTY:
        invocation.note("evidence of an engine of others admits nothing: it says what that engine got right and wrong")
        return None
    missing = {suite.name for suite in SUITES} - {suite.name for suite in report.plan.suites}
    if missing:
        invocation.note("a run of some suites certifies nothing: without --suite its evidence is believed on this host")
        return None
    if host != os.uname().nodename:
        invocation.note("a run that was begun on another host is not believed on this one")
        return None
    sources = (report.directory / name for name in (PLAN, BLOCKS))
    if not all(only_owner_writes(os.stat(source)) for source in sources):
        invocation.note("a run that somebody else could have written is not believed on this host")
        return None
    try:
        return local.store(report.evidence, options.settings_of(invocation).require_state())
    except (EnvironmentFault, ConfigInvalid) as error:
        invocation.warn(f"the evidence is not kept for later loads: {error.message}")
        return None


def _begun(
    invocation: Invocation,
    family: str,
    backend: tuple[str | None, str | None],
    suites: list[str] | None,
    level: str | None,
    corpus: list[str] | None,
    shard: str | None,
    seed: int | None,
    out: str | None,
) -> tuple[Prepared, Checkpoint]:
    from toktier.certify import checkpoint as checkpoints
    from toktier.certify.evidence import build_facts
    from toktier.certify.levels import Level
    from toktier.certify.plan import Shard, parse_shard

    part = Shard() if shard is None else parse_shard(shard)
    if level is not None and level not in list(Level):
        raise UsageError(f"{shown(level)!r} is no level: expected {', '.join(Level)}", remedy="toktier certify --help")
    chosen = _suites(suites)
    if corpus and not any(suite.name == "corpus" for suite in chosen):
        raise UsageError("--corpus is for the suite corpus, which --suite leaves out", remedy="add --suite corpus")
    if out is not None:
        checkpoints.require_unused(Path(out))
    path, name = artifact(invocation, family)
    name_of_backend, driver = backend
    subject = make_subject(invocation, path, compared(name_of_backend), corpus, driver)
    prepared = _planned(invocation, subject, chosen, Level(level or Level.QUICK), seed or 0, name)
    if part.count > max(1, prepared.plan.blocks):
        raise UsageError(
            f"the plan has {prepared.plan.blocks} blocks, too few for {part.count} shards",
            details={"blocks": prepared.plan.blocks, "shards": part.count},
            remedy=f"use at most {prepared.plan.blocks} shards",
        )
    target = {
        "artifact": _absolute(family) if options.looks_like_path(family) else family,
        "corpora": [_absolute(path) for path in corpus or ()],
        "host": os.uname().nodename,
        "driver": None if driver is None else _absolute(driver),
    }
    directory = Path(out) if out is not None else new_directory(invocation, name, level or Level.QUICK)
    return prepared, checkpoints.begin(directory, prepared.plan, part, build_facts(), target)


def _absolute(path: str) -> str:
    """For whoever resumes. JSON holds no name that is not UTF-8: that one is escaped, and has to be given again."""
    return os.path.abspath(path).encode("utf-8", "backslashreplace").decode("utf-8")


def _resumed(
    invocation: Invocation, directory: Path, family: str | None, given: dict[str, Any]
) -> tuple[Prepared, Checkpoint]:
    from toktier.certify import checkpoint as checkpoints
    from toktier.certify.evidence import build_facts
    from toktier.certify.plan import differences
    from toktier.certify.verify import require_artifact, require_same_plan
    from toktier.errors import EvidenceStale

    said = [option for option, value in given.items() if value is not None and value != []]
    if said:
        raise UsageError(
            f"--resume goes on with what was planned: it takes no {' or '.join(said)}",
            remedy=f"toktier certify --resume {typed(directory)}",
        )
    state = checkpoints.read(directory)
    content = state.plan.document
    path, _ = artifact(invocation, family or str(state.target["artifact"]))
    subject = make_subject(
        invocation,
        path,
        compared(content["backend"]),
        list(state.target.get("corpora", ())),
        state.target.get("driver"),
    )
    require_artifact(state.plan, subject)
    names = [planned.name for planned in state.plan.suites]
    prepared = _planned(
        invocation, subject, _suites(names), state.plan.level, state.plan.seed, content["artifact"]["name"]
    )
    require_same_plan(state.plan, prepared, shown_path(directory))
    built = differences(state.build, build_facts())
    if built:
        raise EvidenceStale(
            f"{shown_path(directory)} was begun with another build: {built[0]['path']} differs",
            details={"differs": built},
            remedy="run it anew, without --resume",
        )
    return prepared, state


def _planned(
    invocation: Invocation, subject: Subject, suites: list[Any], level: Level, seed: int, name: str
) -> Prepared:
    from toktier.certify.plan import make_plan

    progress = Progress(invocation, len(suites), "suites planned")
    try:
        return make_plan(subject, suites, level, seed, name, progress.advance)
    finally:
        progress.close()


def _suites(names: list[str] | None) -> list[Any]:
    from toktier.certify.suites import SUITES

    known = {suite.name: suite for suite in SUITES}
    for name in names or ():
        if name not in known:
            raise UsageError(
                f"{shown(name)!r} is no suite: expected one of {', '.join(known)}",
                details={"suites": list(known)},
                remedy="toktier certify --help",
            )
    return [suite for suite in SUITES if not names or suite.name in names]


def compared(name: str | None) -> Compared:
    """What is to be compared with the reference. Raises UsageError."""
    if name is None:
        return Compared.FAST_CPU
    if name not in set(Compared):
        raise UsageError(
            f"--backend {shown(name)} cannot be certified: expected one of {', '.join(Compared)}",
            details={"backends": list(Compared)},
            remedy="use --backend fast_cpu",
        )
    return Compared(name)


def artifact(invocation: Invocation, name: str) -> tuple[Path, str]:
    """The file of a family or path, and what to call it: a pinned family where the bytes are its own."""
    from toktier.artifacts.pins import shipped_pins
    from toktier.artifacts.resolve import obtain

    if not options.looks_like_path(name):
        found = obtain(name, options.settings_of(invocation), notify=invocation.note)
        return found.path, name
    path = Path(name)
    if not path.is_file():
        raise ArtifactNotFound(f"{shown_path(path)} does not exist", details={"path": name}, remedy="check the path")
    followed = options.tokenizer_json(path, options.settings_of(invocation))
    if followed != path:
        return followed, shown(path.name)
    import hashlib

    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    families = shipped_pins().families.values()
    return path, next((f.name for f in families if f.tokenizer.sha256 == digest), shown(path.name))


def make_subject(
    invocation: Invocation, path: Path, backend: Compared, corpus: list[str] | None, driver: str | None = None
) -> Subject:
    """What is certified, with its corpora. `driver`: the library that the emulator is."""
    from toktier.certify.subject import Subject

    home = options.settings_of(invocation).home
    return Subject(path, backend, home, tuple(map(Path, corpus or ())), None if driver is None else Path(driver))


def new_directory(invocation: Invocation, name: str, level: str) -> Path:
    """A fresh run directory under the state root."""
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    plain = "".join(c if c.isalnum() or c in "._-" else "-" for c in name)[:80]
    return runs_directory(invocation) / f"{plain}-{level}-{stamp}-{os.urandom(3).hex()}"


def runs_directory(invocation: Invocation) -> Path:
    return options.settings_of(invocation).require_state() / RUNS


class Watch:
    """Progress of a run: blocks, bytes a second, time left, mismatches so far."""

    def __init__(self, invocation: Invocation, total: int) -> None:
        self._total, self._done, self._bytes, self._mismatches, self._faults = total, 0, 0, 0, 0
        self._begun = time.monotonic()
        self._progress = Progress(invocation, total, "blocks", self._detail)

    def __call__(self, answer: Any) -> None:
        self._done += 1
        counts = getattr(answer, "counts", None)
        if counts is None:
            self._faults += 1
        else:
            self._bytes += counts.utf8_bytes
            self._mismatches += counts.mismatches
        self._progress.advance()

    def close(self) -> None:
        self._progress.close()

    def _detail(self) -> str:
        seconds = max(time.monotonic() - self._begun, 1e-3)
        left = round(seconds / max(self._done, 1) * (self._total - self._done))
        faults = f", {self._faults:,} without a result" if self._faults else ""
        return (
            f", {self._bytes / seconds / 1e6:.1f} MB/s, {left // 60}:{left % 60:02d} left, "
            f"{self._mismatches:,} mismatches{faults}"
        )


def finished(
    invocation: Invocation, report: Report, junit: str | None, summary: str | None, stored: Path | None = None
) -> Result:
    """Copies of the reports where they were asked for, and the result. `stored`: where loads find the evidence."""
    from toktier.certify.outcome import EXIT_CODES, Outcome
    from toktier.storage import atomic_write
    from toktier_cli.verbs import certify_text

    if junit is not None:
        atomic_write(Path(junit), report.junit(), 0o644)
    if summary is not None:
        atomic_write(Path(summary), report.summary(), 0o644)
    _append_step_summary(invocation, report)
    if report.outcome is Outcome.INCOMPLETE and report.out_of_time:
        invocation.note(f"time is up: go on with toktier certify --resume {typed(report.directory)}")
    return Result(
        "certify",
        lambda: certify_text.document(report, stored),
        lambda: certify_text.text(report, stored),
        ExitCode(EXIT_CODES[report.outcome]),
    )


def _append_step_summary(invocation: Invocation, report: Report) -> None:
    """To the page that the CI system shows, where it names a file for it."""
    path = os.environ.get("GITHUB_STEP_SUMMARY")
    if not path:
        return
    try:
        with open(path, "ab") as file:
            file.write(report.summary())
    except OSError as error:
        invocation.warn(f"GITHUB_STEP_SUMMARY {shown_path(path)} cannot be written: {error.strerror}")
