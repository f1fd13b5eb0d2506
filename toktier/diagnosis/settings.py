"""Checks of settings, environment variables, directories and what the network may be used for. Nothing is made."""

from __future__ import annotations

import difflib
import os
import stat
from pathlib import Path
from typing import Any

from toktier import diagnostics_ring
from toktier.config import setting_names, variable_names
from toktier.diagnosis.context import Context
from toktier.diagnosis.model import Code, Finding, Reason, Remedy, Status, counted, ok, skip
from toktier.errors import ConfigInvalid
from toktier.labels import MAX_QUOTED, shown, shown_path
from toktier.routing.vocabulary import parse_backend

# Variables that others made and that change what happens here: told as set or unset, never with their values.
FOREIGN_VARIABLES = (
    "HF_HUB_OFFLINE", "HF_ENDPOINT", "HF_HOME", "HF_TOKEN", "HTTPS_PROXY", "HTTP_PROXY", "ALL_PROXY", "NO_PROXY",
    "SSL_CERT_FILE", "SSL_CERT_DIR", "CUDA_VISIBLE_DEVICES", "CUDA_HOME", "LD_LIBRARY_PATH",
)  # fmt: skip
_PROXIES = ("HTTPS_PROXY", "HTTP_PROXY", "ALL_PROXY")


def settings(context: Context) -> Finding:
    try:
        known = context.settings
        parse_backend(known.tokenizer)  # any word passes for a name until a load looks for the backend
    except ConfigInvalid as error:
        return Finding(
            Status.FAIL,
            error.message,
            {},
            (Reason(Code.CONFIG_INVALID, error.code, "settings that are understood"),),
            Remedy(error.remedy or "correct it", "toktier config show --origin"),
        )
    said = {name: known.origins.get(name, "default") for name in setting_names() if name != "config_file"}
    changed = sorted(name for name, origin in said.items() if origin not in ("default", "home", "HOME"))
    facts: dict[str, Any] = {
        "config_file": None if known.config_file is None else str(known.config_file),
        "origins": said,
        "policy_tokenizer": known.tokenizer,
        "gpu_disabled": known.disable_gpu,
    }
    where = "no config.toml" if known.config_file is None else shown_path(known.config_file)
    return ok(f"{where}; set: {', '.join(changed) or 'nothing'}", **facts)


def variables(context: Context) -> Finding:
    """A misspelt variable is ignored by everything else: the default would pass for what was meant."""
    known = variable_names()
    told = {name: "set" if context.environ.get(name) else "unset" for name in (*known, *FOREIGN_VARIABLES)}
    given = sorted(name for name, value in context.environ.items() if name.startswith("TOKTIER_") and value)
    strangers = [name for name in given if name not in known]
    if not strangers:
        said = f"{counted(len(given), 'TOKTIER_ variable')}, all known" if given else "no TOKTIER_ variable is set"
        return ok(said, environment=told)
    reasons = []
    for name in strangers:
        near = difflib.get_close_matches(name, known, n=1)
        label = shown(name, MAX_QUOTED)
        reasons.append(Reason(Code.VARIABLE_UNKNOWN, label, near[0] if near else "a variable that toktier reads"))
    names = ", ".join(shown(name, MAX_QUOTED) for name in strangers)
    return Finding(
        Status.WARN,
        f"nothing reads {names}",
        {"environment": told},
        tuple(reasons),
        Remedy("correct the name, or unset the variable", "toktier config show --origin"),
    )


def cache_directory(context: Context) -> Finding:
    directory = context.settings.cache_dir
    return _directory("artifact_cache_dir", None if directory is None else directory / "artifacts", "cache")


def state_directory(context: Context) -> Finding:
    return _directory("state_dir", context.settings.state_dir, "state")


def _directory(fact: str, path: Path | None, what: str) -> Finding:
    """Whether it is one, or would be made at the first write."""
    if path is None:
        return Finding(
            Status.WARN,
            f"there is no {what} directory: nothing can be kept",
            {fact: None, "usable": False},
            (Reason(Code.DIRECTORY_NONE, "none", "an absolute HOME or TOKTIER_HOME"),),
            Remedy("set TOKTIER_HOME to a directory, or give --home DIR", "export TOKTIER_HOME=/path/to/a/directory"),
        )
    facts: dict[str, Any] = {fact: str(path), "exists": False, "writable": False, "mode": None, "usable": False}
    standing, status, hidden = nearest(path)
    facts["exists"] = standing == path
    shown_standing = shown_path(standing)
    if hidden:
        text = f"{shown_standing} may not be searched by this user"
        return _unusable(facts, text, Code.DIRECTORY_UNREADABLE, Status.UNKNOWN)
    if not stat.S_ISDIR(status.st_mode):
        return _unusable(facts, f"{shown_standing} is no directory", Code.DIRECTORY_NOT_A_DIRECTORY, Status.FAIL)
    readable = os.access(standing, os.R_OK | os.X_OK)
    facts["writable"] = os.access(standing, os.W_OK | os.X_OK)
    if facts["exists"]:
        facts["mode"] = f"{stat.S_IMODE(status.st_mode):04o}"
        if not readable:
            text = f"{shown_standing} cannot be read by this user"
            return _unusable(facts, text, Code.DIRECTORY_UNREADABLE, Status.UNKNOWN)
    facts["usable"] = facts["writable"]
    if not facts["writable"]:
        readable_only = "what is there is used, nothing new can be kept"
        text = f"{shown_standing} cannot be written: {readable_only if facts['exists'] else 'nothing can be kept'}"
        return _unusable(facts, text, Code.DIRECTORY_READ_ONLY, Status.WARN)
    if status.st_mode & stat.S_IWOTH and not status.st_mode & stat.S_ISVTX:
        text = f"every user may write {shown_standing}: toktier stores nothing there"
        return _unusable(facts, text, Code.DIRECTORY_OPEN_TO_ALL, Status.WARN)
    return ok(f"{shown_path(path)}{'' if facts['exists'] else ', made when something is kept'}", **facts)


_DIRECTORY_REMEDIES = {
    Code.DIRECTORY_NOT_A_DIRECTORY: "move what lies there away, or point TOKTIER_HOME elsewhere",
    Code.DIRECTORY_UNREADABLE: "make it readable for this user, or point TOKTIER_HOME elsewhere",
    Code.DIRECTORY_READ_ONLY: "make it writable, or point TOKTIER_HOME at a directory that is",
    Code.DIRECTORY_OPEN_TO_ALL: "take the permission from the others (chmod o-w)",
}


def _unusable(facts: dict[str, Any], text: str, code: Code, status: Status) -> Finding:
    wanted = "a directory that this user, and no stranger, can write"
    command = None if code is Code.DIRECTORY_OPEN_TO_ALL else "export TOKTIER_HOME=/path/to/a/directory"
    seen = facts["mode"] or ("read-only" if code is Code.DIRECTORY_READ_ONLY else None)  # of what is there
    return Finding(status, text, facts, (Reason(code, seen, wanted),), Remedy(_DIRECTORY_REMEDIES[code], command))


def nearest(path: Path) -> tuple[Path, os.stat_result, bool]:
    """`path`, or the nearest thing above it that is there, and whether what is below it may not even be looked at."""
    hidden = False
    for step in (path, *path.parents):
        try:
            return step, os.stat(step), hidden
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError:
            hidden = True
    raise FileNotFoundError(path)  # the root itself is not there


def network(context: Context) -> Finding:
    """What is configured. Nothing is connected to, so nothing is said about what answers."""
    known = context.settings
    endpoint = context.environ.get("HF_ENDPOINT") or None
    proxies = [name for name in _PROXIES if context.environ.get(name) or context.environ.get(name.lower())]
    facts = {
        "configured_offline": known.offline,
        "offline_origin": known.origins.get("offline", "default"),
        "hub_endpoint": endpoint,
        "proxies": proxies,
        "signature_keys": len(known.signature_keys),
    }
    if known.offline:
        return ok(f"offline, by {known.origins.get('offline', 'default')}", **facts)
    via = f", through {', '.join(proxies)}" if proxies else ""
    return ok(f"the network may be used for what is not in the cache{via}", **facts)


def ring(context: Context) -> Finding:
    """The last fallbacks and errors that processes with TOKTIER_DIAGNOSTICS=1 left."""
    known = context.settings
    if known.state_dir is None:
        return skip("there is no state directory to keep it in", diagnostics=known.diagnostics)
    entries = diagnostics_ring.read(known.state_dir)
    counts: dict[str, int] = {}
    for entry in entries:
        counts[entry["code"]] = counts.get(entry["code"], 0) + 1
    facts = {"diagnostics": known.diagnostics, "recorded": len(entries), "codes": dict(sorted(counts.items()))}
    if not entries:
        text = "on, nothing recorded" if known.diagnostics else "off (TOKTIER_DIAGNOSTICS=1 keeps codes, never text)"
        return ok(text, **facts) if known.diagnostics else skip(text, **facts)
    told = ", ".join(f"{code} {counted(count, 'time')}" for code, count in sorted(counts.items()))
    text = f"recorded: {told}; last {entries[-1]['code']} at {entries[-1]['at']}"
    fell = sorted({entry["code"] for entry in entries if entry["kind"] == diagnostics_ring.FALLBACK})
    if not fell:
        return ok(text, **facts)
    return Finding(
        Status.WARN,
        text,
        facts,
        tuple(Reason(Code.FALLBACKS_RECORDED, f"{code}: {counts[code]}", 0) for code in fell),
        Remedy(
            "ask about the tokenizer that fell back; a bundle takes the record along", "toktier doctor --family NAME"
        ),
    )
