"""`toktier doctor`: what will run here and why not faster; a support bundle; what differs from another host.

Not here: the checks (`toktier.diagnosis`), the text (`toktier_cli.doctor.text`).
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from toktier.diagnosis import report as reports
from toktier.diagnosis.checks import CHECKS, selected
from toktier.diagnosis.context import Context
from toktier.diagnosis.model import Status
from toktier.diagnosis.redaction import Redaction
from toktier.diagnosis.runner import TOTAL_SECONDS, run
from toktier.errors import ArtifactNotFound, ExitCode, RegistryInvalid, UsageError
from toktier.labels import quoted, shown_path
from toktier.regular_files import open_regular
from toktier.storage import environment_fault
from toktier_cli import options
from toktier_cli.invocation import Invocation, Result
from toktier_cli.table import columns

MAX_REPORT_BYTES = 16 << 20
MAX_TIMEOUT = 3600.0
GATES = ("fail", "warn")


class DoctorCommand(TyperCommand):
    """`--check` alone is `--check=fail`: the framework knows no option whose value may be left out."""

    def parse_args(self, ctx: Any, args: list[str]) -> Any:
        end = args.index("--") if "--" in args else len(args)
        return super().parse_args(ctx, ["--check=fail" if a == "--check" else a for a in args[:end]] + args[end:])


def doctor(
    ctx: typer.Context,
    family: Annotated[
        str | None, typer.Option("--family", "-f", metavar="FAMILY", help="Also what runs for this tokenizer, and why.")
    ] = None,
    check: Annotated[
        str | None,
        typer.Option("--check", metavar="[=warn]", help="Exit code 1 for a failed check; with =warn for warnings too."),
    ] = None,
    only: Annotated[list[str] | None, typer.Option("--only", metavar="IDS", help="Only these checks or areas.")] = None,
    without: Annotated[list[str] | None, typer.Option("--skip", metavar="IDS", help="All but these.")] = None,
    list_: Annotated[bool, typer.Option("--list", help="The checks, without asking them.")] = False,
    timeout: Annotated[
        float,
        typer.Option(
            "--timeout", metavar="SECONDS", help="For the whole report; a check has two fifths of it at most."
        ),
    ] = TOTAL_SECONDS,
    bundle: Annotated[
        str | None, typer.Option("--bundle", metavar="OUT.tar", help="Write a support bundle. It is not sent.")
    ] = None,
    compare: Annotated[
        str | None, typer.Option("--compare", metavar="OTHER.json", help="What differs from another host's report.")
    ] = None,
    no_redact: Annotated[
        bool, typer.Option("--no-redact", help="Leave home, user, host, credentials and tokens as they are.")
    ] = False,
) -> Result:
    """What will run on this host, and why not faster. Nothing is written, loaded on a GPU or connected to.

    Exit code 0 when there is a report. With --check: 1 for a failed check, 6 where a needed check could not look. A
    part that may be absent, such as a GPU, never fails it. IDS are ids or areas, separated by commas.
    """
    invocation: Invocation = ctx.obj
    if check not in (None, *GATES):
        raise UsageError(
            f"--check takes {' or '.join(GATES)}, not {quoted(str(check))}", remedy="toktier doctor --help"
        )
    if bundle is not None and compare is not None:
        raise UsageError("expected one of --bundle and --compare, not both", remedy="toktier doctor --help")
    if not 0 < timeout <= MAX_TIMEOUT:
        raise UsageError(
            f"--timeout takes more than 0 and at most {MAX_TIMEOUT:g} seconds", remedy="toktier doctor --help"
        )
    checks = selected(only or (), without or (), with_family=family is not None)
    if list_:
        return _list()
    if not checks:
        raise UsageError("no check is left", remedy="toktier doctor --list")
    other = None if compare is None else read_report(compare)
    out = None if bundle is None else Path(bundle)
    if out is not None:
        from toktier.diagnosis.bundle import check_name

        check_name(out)
    if family is not None:
        _known(family)
    context = Context(config=options.config_of(invocation), family=family)
    redaction = Redaction(context.environ, enabled=not no_redact)
    rows = run(checks, context, timeout)
    told = reports.make_report(rows, context, redaction)
    code = _gate(told.status, check)
    if out is not None:
        return _bundle(invocation, out, told, code, context, redaction)
    if other is not None:
        return _compare(told, other, str(compare), redaction, code, gated=check is not None)
    return Result("doctor", lambda: told.document, lambda: _text(invocation, told.document), code)


def _known(family: str) -> None:
    """Raises for a name that nothing has, before anything is asked. A damaged table is a row of the report."""
    if not family:
        raise UsageError("--family needs a name", remedy="toktier artifacts list --available")
    if options.looks_like_path(family) or family.startswith("local/"):
        return
    from toktier.artifacts.pins import shipped_pins

    try:
        shipped_pins().family(family)
    except RegistryInvalid:
        return


def _gate(status: Status, check: str | None) -> ExitCode:
    if check is None:
        return ExitCode.DONE
    if status is Status.FAIL or (status is Status.WARN and check == "warn"):
        return ExitCode.NO
    return ExitCode.INCOMPLETE if status is Status.UNKNOWN else ExitCode.DONE


def _text(invocation: Invocation, document: dict[str, Any]) -> str:
    from toktier_cli.doctor.text import report_text

    plain = invocation.no_color or os.environ.get("NO_COLOR") or os.environ.get("TERM", "dumb") == "dumb"
    width = shutil.get_terminal_size().columns if invocation.tty else None
    return report_text(document, width=width, colour=invocation.tty and not plain)


def _list() -> Result:
    def document() -> dict[str, Any]:
        return {
            "checks": [
                {"id": c.id, "area": c.area, "required": c.required, "with_family": c.with_family, "asks": c.asks}
                for c in CHECKS
            ]
        }

    def text() -> str:
        rows = [(c.id, "" if c.required else "optional", c.asks + (" (--family)" * c.with_family)) for c in CHECKS]
        return columns(("CHECK", "", "ASKS"), rows)

    return Result("doctor_list", document, text)


def _bundle(
    invocation: Invocation, out: Path, told: reports.Report, code: ExitCode, context: Context, redaction: Redaction
) -> Result:
    from toktier.diagnosis import bundle

    given = bundle.members(told.document, int(code), context, redaction)
    listed = [member.to_dict() for member in given]
    invocation.note("\n".join(f"to be written: {m['name']}, {m['size']:,} bytes" for m in listed))
    digest = bundle.write(out, given)
    return Result(
        "doctor_bundle",
        lambda: {"path": str(out), "sha256": digest, "members": listed, "status": told.status.value},
        lambda: f"{shown_path(out)}: {len(listed)} files, SHA-256 {digest}; read it before you pass it on\n",
        code,
    )


def read_report(name: str) -> dict[str, Any]:
    """A report that `toktier doctor --json` printed. Raises ArtifactNotFound, UsageError or EnvironmentFault."""
    path = Path(name)
    try:
        with open_regular(path) as stream:
            data = stream.read(MAX_REPORT_BYTES + 1) or b""
    except FileNotFoundError:
        raise ArtifactNotFound(
            f"there is no file {shown_path(path)}", details={"path": name}, remedy="toktier doctor --json > other.json"
        ) from None
    except OSError as error:
        raise environment_fault(error, "read", path) from None
    try:
        if len(data) > MAX_REPORT_BYTES:
            raise ValueError("too large")
        document = json.loads(data)
        good = document["schema"] == f"toktier.{reports.NAME}" and document["schema_version"] == reports.SCHEMA_VERSION
        if not good or not all(isinstance(check["id"], str) for check in document["checks"]):
            raise ValueError("another schema")
    except (ValueError, TypeError, KeyError, RecursionError):
        raise UsageError(
            f"{shown_path(path)} is no report of `toktier doctor --json`",
            details={"path": name},
            remedy="toktier doctor --json > other.json",
        ) from None
    return dict(document)


def _compare(
    told: reports.Report, other: dict[str, Any], name: str, redaction: Redaction, code: ExitCode, *, gated: bool
) -> Result:
    here = reports.whole(told.document, 0)
    found = redaction.document(reports.differences(here, other))
    if gated and found and code is ExitCode.DONE:
        code = ExitCode.NO

    def document() -> dict[str, Any]:
        return {"other": name, "same": not found, "differences": found}

    def text() -> str:
        if not found:
            return "no difference\n"
        return columns(("WHAT", "HERE", "THERE"), [(e["path"], _value(e["here"]), _value(e["there"])) for e in found])

    return Result("doctor_compare", document, text, code)


def _value(value: Any) -> str:
    from toktier.labels import shown

    return shown(value if isinstance(value, str) else json.dumps(value), 60)


doctor.command_class = DoctorCommand  # type: ignore[attr-defined]
