"""`toktier certify merge`, `verify`, `show`, `replay`, `diff`: what is done with runs and evidence that exist."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from toktier.errors import EvidenceInvalid, ExitCode, ToktierError
from toktier.labels import shown, shown_path
from toktier.routing.vocabulary import Compared
from toktier_cli import options
from toktier_cli.invocation import Invocation, Result
from toktier_cli.table import columns
from toktier_cli.verbs.certify import (
    Corpus,
    Driver,
    Junit,
    MaxFailures,
    Out,
    Summary,
    artifact,
    finished,
    make_subject,
    new_directory,
    runs_directory,
)

if TYPE_CHECKING:
    from toktier.certify.subject import Subject

DIGEST_SHOWN = 12
DIFFERENCES_SHOWN = 40


def merge(
    ctx: typer.Context,
    directories: Annotated[list[str], typer.Argument(metavar="DIR...", show_default=False)],
    out: Out = None,
    junit: Junit = None,
    summary: Summary = None,
    max_failures: MaxFailures = 20,
) -> Result:
    """Put the shards of one plan together: the evidence that one run would have made.

    Exit code 5: foreign, edited or overlapping parts. 6: blocks are missing.
    """
    from toktier.certify import checkpoint as checkpoints
    from toktier.certify.merge import merge as merge_runs

    invocation: Invocation = ctx.obj
    paths = [Path(directory) for directory in directories]
    if out is None:
        content = checkpoints.read(paths[0]).plan.document
        out = str(new_directory(invocation, content["artifact"]["name"], content["level"]))
    return finished(invocation, merge_runs(paths, Path(out), max_failures), junit, summary)


def verify(
    ctx: typer.Context,
    evidence: Annotated[str, typer.Argument(metavar="EVIDENCE|DIR", show_default=False)],
    sample: Annotated[
        int, typer.Option(metavar="N", help="Blocks to run again, drawn anew each time.", min=0, max=1_000_000)
    ] = 0,
    family: options.Family = None,
    file: options.File = None,
    corpus: Corpus = None,
    driver: Driver = None,
) -> Result:
    """Hold evidence against its own rules, this installation, and a sample of its blocks.

    Exit code: that of the outcome it records (0, 1, 6). 4: of another engine or reference. 5: edited or foreign.
    """
    from toktier.certify.outcome import EXIT_CODES
    from toktier.certify.verify import sample as run_sample
    from toktier.certify.verify import verify as verify_file

    invocation: Invocation = ctx.obj
    found = verify_file(Path(evidence))
    content = found.plan.document
    if sample:
        name = file or family or content["artifact"]["name"]
        subject = _subject(invocation, name, content["backend"], corpus, driver)
        run_sample(found, subject, sample)
    mismatches = sum(block["counts"]["mismatches"] for block in found.sampled)
    recorded = found.document["totals"]["mismatches"]
    code = ExitCode.NO if mismatches and not recorded else EXIT_CODES[found.outcome]

    def document() -> dict[str, Any]:
        return {
            "path": evidence,
            "digest": found.document["digest"],
            "plan": found.plan.digest,
            "artifact": content["artifact"],
            "outcome": found.outcome.value,
            "checks": found.checks,
            "sampled": found.sampled,
            "mismatches": mismatches,
        }

    def text() -> str:
        ran = f", {len(found.sampled)} blocks run again with {mismatches} mismatches" if sample else ""
        return (
            f"{shown_path(evidence)}: {found.outcome.value}, {content['artifact']['name']} on {content['backend']}, "
            f"{content['level']}\nchecked: {', '.join(found.checks)}{ran}\ndigest {found.document['digest']}\n"
        )

    return Result("certify_verify", document, text, code)


def show(
    ctx: typer.Context,
    name: Annotated[str | None, typer.Argument(metavar="[FAMILY|FILE]", show_default=False)] = None,
) -> Result:
    """The runs on this host, and the evidence of them that loads believe: of every tokenizer, or of one."""
    from toktier.evidence import local
    from toktier_cli.verbs.certify_forget import entry

    invocation: Invocation = ctx.obj
    digest = None
    if name is not None:
        path, _ = artifact(invocation, name)
        import hashlib

        digest = hashlib.sha256(path.read_bytes()).hexdigest()
    root = runs_directory(invocation)
    found = [_run(path) for path in sorted(root.iterdir())] if root.is_dir() else []
    runs = [run for run in found if run is not None and digest in (None, run["artifact"]["sha256"])]

    state = options.settings_of(invocation).require_state()
    kept = [entry(one) for one in (local.everything(state) if digest is None else local.of_artifact(state, digest))]

    def text() -> str:
        believed = "".join(
            f"believed here: {e['name']} on {e['backend']} beside {e['reference_version']}, level {e['level']}\n"
            if e["problem"] is None
            else f"not believed: {shown_path(e['path'])}: {e['problem']}\n"
            for e in kept
        )
        if not runs:
            return f"no run of a certification on this host\n{believed}"
        rows = [
            (
                run["artifact"]["name"],
                run["backend"],
                run["reference"]["version"],
                run["level"],
                f"{run['blocks_done']} of {run['blocks']}",
                (run["outcome"] or ("shard" if run["shard"]["count"] > 1 else "unfinished"))
                + ("" if run["current"] else ", of another installation"),
                shown_path(run["path"]),
            )
            for run in runs
        ]
        header = ("ARTIFACT", "BACKEND", "REFERENCE", "LEVEL", "BLOCKS", "OUTCOME", "DIRECTORY")
        return columns(header, rows, (4,)) + believed

    return Result("certify_show", lambda: {"runs": runs, "local_evidence": kept}, text)


def _run(path: Path) -> dict[str, Any] | None:
    """One line of `show`; None for what is no run."""
    from toktier.certify import checkpoint as checkpoints
    from toktier.certify.evidence import FILE_NAME, read_evidence
    from toktier.certify.plan import installed_engine, installed_reference

    try:
        state = checkpoints.read(path)
    except ToktierError:
        return None
    content = state.plan.document
    outcome = digest = None
    try:
        document, _ = read_evidence(path / FILE_NAME)
        outcome, digest = document["outcome"], document["digest"]
    except ToktierError:
        pass
    return {
        "path": str(path),
        **{key: content[key] for key in ("artifact", "backend", "reference", "level")},
        "shard": {"number": state.shard.number, "count": state.shard.count},
        "blocks": len(state.planned),
        "blocks_done": len(state.results),
        "outcome": outcome,
        "digest": digest,
        "current": content["engine"] == installed_engine() and content["reference"]["version"] == installed_reference(),
        "complete": (path / checkpoints.COMPLETE).exists(),
    }


def replay(
    ctx: typer.Context,
    failure: Annotated[str, typer.Argument(metavar="FAILURE", show_default=False)],
    family: options.Family = None,
    file: options.File = None,
) -> Result:
    """Run one failure again. Exit code 0: it agrees now. 1: it still differs."""
    from toktier.certify.failures import read_failure, script_of, text_of
    from toktier.certify.replay import replay as run_again

    invocation: Invocation = ctx.obj
    said = read_failure(Path(failure))
    name = file or family or str(said["target"].get("artifact") or said["artifact"]["name"])
    subject = _subject(invocation, name, said["backend"], None, said["target"].get("driver"))
    now = run_again(said, subject)

    def document() -> dict[str, Any]:
        keys = ("artifact", "suite", "block", "what", "backend")
        return {"path": failure, **{key: said[key] for key in keys}, **now}

    def text() -> str:
        state = "still differs" if now["differs"] else "agrees now"
        lines = [f"{shown_path(failure)}: {state} ({said['suite']} block {said['block']}, {said['what']})"]
        points, script = text_of(said), script_of(said)
        if points is not None:
            c = now["comparison"]
            lines.append(f"text: {' '.join(f'U+{ord(p):04X}' for p in points)}")
            lines.append(f"      {points!a}")
            lines.append(f"from id {c['from']} on, first difference at {c['first_difference']}, by {c['served_by']}")
            for side in ("got", "expected"):
                lines.append(f"{side:9}ids {c[side + '_ids']} offsets {c[side + '_offsets']}")
        elif script is not None:
            c = now["comparison"]
            lines += [f"{e.operation} {f'{e.start} ' if e.operation == 'replace' else ''}{e.text!a}" for e in script]
            lines.append(f"from id {c['from']} on, first difference at {c['first_difference']}, by {c['served_by']}")
            lines += [c["error"]] if c["error"] is not None else []
            lines += [f"{s:9}ids {c[s + '_ids']} lengths {c[s + '_lengths']}" for s in ("got", "expected")]
        elif now["differs"]:
            lines.append(f"{said['subject']}: {now['got']} instead of {now['expected']}")
        return "\n".join(lines) + "\n"

    return Result("certify_replay", document, text, ExitCode.NO if now["differs"] else ExitCode.DONE)


def diff(
    a: Annotated[str, typer.Argument(metavar="A", show_default=False)],
    b: Annotated[str, typer.Argument(metavar="B", show_default=False)],
) -> Result:
    """What differs between two evidence files: plan, build, counts, outcome. Exit code 0: nothing. 1: something."""
    from toktier.certify.evidence import FILE_NAME, read_evidence
    from toktier.certify.plan import differences

    paths = [Path(p) / FILE_NAME if Path(p).is_dir() else Path(p) for p in (a, b)]
    left, right = ({k: v for k, v in read_evidence(p)[0].items() if k != "environment"} for p in paths)
    found = [entry for entry in differences(left, right) if entry["path"] != "plan.digest"]

    def text() -> str:
        if not found:
            return f"the same evidence, digest {left['digest']}\n"
        rows = [(e["path"], shown(str(e["a"]), 40), shown(str(e["b"]), 40)) for e in found[:DIFFERENCES_SHOWN]]
        more = len(found) - len(rows)
        return columns(("WHAT", "A", "B"), rows) + (f"and {more} more\n" if more else "")

    return Result(
        "certify_diff",
        lambda: {"a": a, "b": b, "same": not found, "differences": found},
        text,
        ExitCode.NO if found else ExitCode.DONE,
    )


def _subject(invocation: Invocation, name: str, backend: str, corpus: list[str] | None, driver: str | None) -> Subject:
    path, _ = artifact(invocation, name)
    if backend not in set(Compared):  # the reference beside itself always agrees
        raise EvidenceInvalid(
            f"{shown(backend)} is no backend that is compared with the reference",
            remedy="bring the file again from where it was made",
        )
    return make_subject(invocation, path, Compared(backend), corpus, driver)
