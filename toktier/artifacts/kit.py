"""Makes a kit: a plain folder that brings a bare disconnected host to a running toktier.

In it: our own wheel, wheels/ with what that needs, bundle.tar with the families, notices/, kit.json (what all that is),
SHA256SUMS, verify_kit.py and INSTALL.txt with the two lines to type. kit.json is canonical JSON without a time, a host
or a path of this machine: two kits differ only in what pip brought. The folder is made aside and renamed: under its
final name it is whole or absent. Not here: where wheels come from (`kit_wheels`), the form of a bundle, the check.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import shutil
import tempfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from toktier.artifacts import verify_kit
from toktier.artifacts.export import export_bundle
from toktier.artifacts.fetch import fetch, not_found
from toktier.artifacts.kit_wheels import SIGN_EXTRA, dependency_wheels, own_pins, own_wheel, require_extra, target_of
from toktier.artifacts.pins import Family, Pins, shipped_pins
from toktier.artifacts.signatures import signature_path
from toktier.artifacts.wheel_target import Target, Wheel
from toktier.canonical import canonical_json
from toktier.config import Settings
from toktier.errors import InternalError, UsageError
from toktier.labels import shown_path
from toktier.storage import OUT, atomic_write, environment_fault, make_directory, sync_directory

SCHEMA = "toktier.kit"
SCHEMA_VERSION = 1
BUNDLE = "bundle.tar"
WHEELS = "wheels"
NOTICES = "notices"
VERIFIER = "verify_kit.py"
INSTALL = "INSTALL.txt"
PUBLIC_KEY = "PUBLIC.pem"  # what INSTALL.txt calls the key that the receiver brings
DEFAULT_TIMEOUT = 600.0
FILE_MODE, DIRECTORY_MODE = 0o644, 0o755  # carried to another user, who has to read it
# Where wheels carry them: PEP 639, PEP 770, or our own data.
_NOTICE = re.compile(
    r"(?:toktier-[^/]+\.dist-info/(?:licenses|sboms)|toktier/data/notices)/(?P<name>[A-Za-z0-9][\w.-]{0,99})", re.ASCII
)
Notify = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class KitReport:
    """A kit that was made. `digest`: SHA-256 of its SHA256SUMS, which lists `files`; `size` in bytes."""

    path: Path
    digest: str
    size: int
    files: int
    target: Target
    manifest: dict[str, Any]


def make_kit(
    names: list[str],
    settings: Settings,
    out: Path,
    *,
    python: str | None = None,
    platform: str | None = None,
    wheel: Path | None = None,
    sign_key: Path | None = None,
    timeout: float = DEFAULT_TIMEOUT,
    notify: Notify,
    pins: Pins | None = None,
) -> KitReport:
    """Makes the kit of the families `names` in `out`, which must not exist or be an empty directory.

    `python` and `platform` name the target (default: what the wheel is made for), `wheel` our own wheel (default: built
    from the checkout), `sign_key` an Ed25519 key that signs the bundle. `timeout` in seconds, for the build and for
    each round of downloads. Families that are not in the cache are fetched. Raises UsageError, UnknownFamily,
    ArtifactNotFound, SourceUnreachable, BackendUnavailable, BundleInvalid, EnvironmentFault.
    """
    pins = pins or shipped_pins()
    families = [pins.family(name) for name in sorted(set(names))]
    bundled = [family for family in families if not family.shipped]
    if sign_key is not None and not bundled:
        raise UsageError(
            "a signature is over the bundle, and these families need none: they are part of our wheel",
            remedy="leave --sign out, or name a family that is not shipped",
        )
    out = Path(os.path.abspath(out))
    _require_free(out)
    make_directory(out.parent, DIRECTORY_MODE, named_by=OUT)
    try:
        aside = Path(tempfile.mkdtemp(prefix=".toktier-kit-", dir=out.parent))
    except OSError as error:
        raise environment_fault(error, "write in", out.parent, OUT) from None
    try:
        kit, scratch = aside / "kit", aside / "scratch"
        kit.mkdir()
        scratch.mkdir()
        own = own_wheel(wheel, scratch, timeout, notify)
        _require_equal_pins(families, pins, own_pins(own), own)
        target = target_of(own, python, platform)
        extras = frozenset() if sign_key is None else frozenset({SIGN_EXTRA})
        for extra in extras:
            require_extra(own, target, extra)
        for family in bundled:
            _bring(family, settings, pins, notify)
        missing: dict[str, list[str]] = {}
        signed_by = None
        if bundled:
            names = [family.name for family in bundled]
            exported = export_bundle(names, pins, settings, kit / BUNDLE, sign_key=sign_key)
            missing = {entry.family.name: list(entry.missing) for entry in exported.families}
            signed_by = exported.signed_by
        notify(f"downloading what toktier needs on {target}")
        wheels = dependency_wheels(own, target, scratch, extras=extras, offline=settings.offline, timeout=timeout)
        manifest = _fill(kit, own, wheels, target, families, missing)
        install = install_text(own, target, families, bundled=bool(bundled), signed_by=signed_by)
        (kit / INSTALL).write_text(install, "ascii")
        digest, files, size = _seal(kit, manifest)
        _rename(kit, out)
    except OSError as error:
        raise environment_fault(error, "make a kit in", out.parent, OUT) from None
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    return KitReport(out, digest, size, files, target, manifest)


def _require_free(out: Path) -> None:
    if not os.path.lexists(out):
        return
    if out.is_symlink() or not out.is_dir():
        why = "is no directory"
    elif any(out.iterdir()):
        why = "is not empty"
    elif out.is_mount():
        why = "is where a file system is mounted, and a kit is made aside and renamed"
    else:
        return
    raise UsageError(
        f"{shown_path(out)} {why}: expected a name that is free",
        details={"path": str(out)},
        remedy="give the name of a folder that does not exist yet with --out, such as kit below that directory",
    )


def _require_equal_pins(families: list[Family], here: Pins, there: Pins, own: Wheel) -> None:
    """What is carried must be what the wheel pins: the other side admits nothing else."""
    for family in families:
        other = there.families.get(family.name)
        if other is None or dict(other.files) != dict(family.files) or other.shipped != family.shipped:
            raise UsageError(
                f"{own.path.name} pins other files under {family.name} than this toktier, and would refuse them",
                details={"family": family.name, "here": here.root_digest, "there": there.root_digest},
                remedy="make the kit with the toktier that the wheel holds, or make the wheel anew: "
                "python3 tools/dev.py wheel",
            )


def _bring(family: Family, settings: Settings, pins: Pins, notify: Notify) -> None:
    report = fetch(family.name, settings, pins=pins, notify=notify)
    if not report.loadable:
        raise not_found(family, settings, report)


def _fill(
    kit: Path,
    own: Wheel,
    wheels: list[Wheel],
    target: Target,
    families: list[Family],
    missing: dict[str, list[str]],
) -> dict[str, Any]:
    """Everything but INSTALL.txt, kit.json and SHA256SUMS; gives what kit.json will say, but for the list of files."""
    shutil.copyfile(own.path, kit / own.path.name)
    (kit / WHEELS).mkdir()
    for wheel in wheels:
        shutil.move(wheel.path, kit / WHEELS / wheel.path.name)
    shutil.copyfile(verify_kit.__file__, kit / VERIFIER)
    _copy_notices(own, kit)
    bundled, signature = (kit / BUNDLE).exists(), signature_path(kit / BUNDLE)
    return {
        "schema": SCHEMA,
        "schema_version": SCHEMA_VERSION,
        "toktier": _wheel_entry(own, own.path.name),
        "target": {"python": target.python_text, "platform": target.platform},
        "families": [
            {
                "family": family.name,
                "repo_id": family.repo_id,
                "revision": family.revision,
                "sha256": family.tokenizer.sha256,
                "comes_in": own.path.name if family.shipped else BUNDLE,
                "missing": missing.get(family.name, []),
            }
            for family in families
        ],
        "bundle": BUNDLE if bundled else None,
        "signature": signature.name if signature.exists() else None,
        "wheels": [_wheel_entry(wheel, f"{WHEELS}/{wheel.path.name}") for wheel in wheels],
        "cubins": [],  # this version ships none
    }


def _wheel_entry(wheel: Wheel, path: str) -> dict[str, Any]:
    return {
        "path": path,
        "name": wheel.name,
        "version": str(wheel.version),
        "licence": wheel.licence,
        "sha256": wheel.sha256,
    }


def _copy_notices(own: Wheel, kit: Path) -> None:
    """The licences, third-party notices and bills of materials that our own wheel carries, to be read without it."""
    folder = kit / NOTICES
    with zipfile.ZipFile(own.path) as archive:
        for info in archive.infolist():
            if match := _NOTICE.fullmatch(info.filename):
                folder.mkdir(exist_ok=True)
                (folder / match["name"]).write_bytes(archive.read(info))


def install_text(own: Wheel, target: Target, families: list[Family], *, bundled: bool, signed_by: str | None) -> str:
    """INSTALL.txt: the lines to type on the other host, in the order in which they are typed. `signed_by`: the id of
    the key that signed the bundle."""
    lines = [
        f"toktier {own.version} for {target} or newer",
        "",
        "To check what was carried (Python 3.8 or newer, nothing installed):",
        "",
        f"    python3 {VERIFIER}",
        "",
        "The digest that it prints is the one that was printed where this kit was made; compare them over another way",
        "than the one that this folder came by.",
        "",
        f"To install, in this folder, with the pip of a Python {target.python_text} environment",
        f"(for example: python{target.python_text} -m venv ~/toktier; . ~/toktier/bin/activate):",
        "",
        f"    pip install --no-index --find-links {WHEELS} {own.path.name}"
        if signed_by is None
        else f'    pip install --no-index --find-links {WHEELS} "{own.path.name}[{SIGN_EXTRA}]"',
    ]
    if bundled and signed_by is None:
        lines += [f"    toktier artifacts import {BUNDLE}"]
    elif bundled:
        lines += [
            "",
            f"The bundle is signed by the Ed25519 key with the id {signed_by}.",
            f"To import it only if that holds, with the public half of that key as {PUBLIC_KEY} (take it over another",
            "way than this folder: a key that came with it proves nothing):",
            "",
            f"    toktier artifacts import {BUNDLE} --verify-key {PUBLIC_KEY}",
        ]
    lines += [
        "",
        "To see that it works:",
        "",
        "    toktier artifacts verify" if bundled else "    toktier artifacts list --available",
        f'    toktier encode --family {families[0].name} "hello world"',
        "",
        "Nothing here connects to anything. Cubins: none in this version; the CPU engine needs none.",
        f"Licences: {NOTICES}/ has those of toktier, each wheel in {WHEELS}/ its own; kit.json names them all.",
    ]
    return "\n".join([*lines, ""])


def _seal(kit: Path, manifest: dict[str, Any]) -> tuple[str, int, int]:
    """Writes kit.json and SHA256SUMS, fixes modes, syncs, checks; gives digest, listed files and all bytes."""
    entries = [_entry(path, kit) for path in _files(kit)]
    manifest["files"] = sorted(entries, key=lambda entry: str(entry["path"]))
    atomic_write(kit / verify_kit.MANIFEST, canonical_json(manifest) + b"\n", FILE_MODE, named_by=OUT)
    listed = sorted([*entries, _entry(kit / verify_kit.MANIFEST, kit)], key=lambda entry: str(entry["path"]))
    sums = "".join(f"{entry['sha256']}  {entry['path']}\n" for entry in listed)
    atomic_write(kit / verify_kit.SUMS, sums.encode("ascii"), FILE_MODE, named_by=OUT)
    for path in [*_files(kit), kit / WHEELS, kit / NOTICES, kit]:
        if path.is_file():
            path.chmod(FILE_MODE)
            _sync(path)
        elif path.is_dir():
            path.chmod(DIRECTORY_MODE)
            sync_directory(path)
    outcome = verify_kit.check(kit)
    if outcome.exit_code or outcome.digest is None:
        raise InternalError(f"the kit that was made does not hold: {verify_kit.describe(outcome)}")
    return outcome.digest, outcome.files, sum(path.stat().st_size for path in _files(kit))


def _files(kit: Path) -> list[Path]:
    return sorted(path for path in kit.rglob("*") if path.is_file())


def _entry(path: Path, kit: Path) -> dict[str, Any]:
    with open(path, "rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return {"path": str(path.relative_to(kit)), "sha256": digest, "size": path.stat().st_size}


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _rename(kit: Path, out: Path) -> None:
    try:
        os.rename(kit, out)  # over nothing, or over an empty directory
    except OSError as error:
        if error.errno in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
            _require_free(out)
        raise
    sync_directory(out.parent)
