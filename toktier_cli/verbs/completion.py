"""`toktier completion`: a script that completes verbs, options, families and values in bash, zsh or fish.

The script is made of the verbs as they are and holds all words itself: completing never starts Python, and a new
version of toktier is known to the shell when the script is made again. Not here: what a verb takes (its own module).
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from toktier.errors import UsageError
from toktier.labels import quoted
from toktier_cli.invocation import GLOBAL_HELP, Result

SHELLS = ("bash", "zsh", "fish")


@dataclass(frozen=True, slots=True)
class _Option:
    """`spellings`: of one option. `values`: words that it takes; () for a free value, None for a flag."""

    spellings: tuple[str, ...]
    summary: str
    values: tuple[str, ...] | None


@dataclass(frozen=True, slots=True)
class _Place:
    """A verb or a group of verbs. `words`: the verbs below, or what its arguments may be, each with a summary."""

    words: tuple[tuple[str, str], ...]
    options: tuple[_Option, ...]
    takes_files: bool


def completion(shell: Annotated[str, typer.Argument(metavar="|".join(SHELLS), show_default=False)]) -> Result:
    """Print the completion script of a shell. It starts nothing: all words are in it."""
    if shell not in SHELLS:
        raise UsageError(
            f"no completion for {quoted(shell)}: expected one of {', '.join(SHELLS)}",
            remedy="toktier completion --help",
        )
    script = {"bash": _bash, "zsh": _zsh, "fish": _fish}[shell](_places())
    return Result("completion", lambda: {"shell": shell, "script": script}, lambda: script)


# What the command takes


def _places() -> dict[str, _Place]:
    """By path: "" is the command itself, "artifacts fetch" a verb of a group."""
    from toktier_cli.app import root  # here: it imports this module by name

    places: dict[str, _Place] = {}

    def visit(command: Any, path: str) -> None:
        verbs = getattr(command, "verbs", None)
        if verbs is not None:
            summaries = tuple((name, summary) for name, (_, _, summary) in verbs.items())
            default = command.default
            if default is None:
                places[path] = _Place(summaries, _global_options(), takes_files=False)
            else:
                usual = command.get_command(None, default)
                words = (*summaries, *_argument_words(f"{path} {default}", usual))
                places[path] = _Place(words, (*_options(usual), *_global_options()), takes_files=True)
            for name in verbs:
                visit(command.get_command(None, name), f"{path} {name}".strip())
            return
        words = _argument_words(path, command)
        places[path] = _Place(
            words, (*_options(command), *_global_options()), path not in ("help", "schema", "completion")
        )

    visit(root(), "")
    return places


def _options(command: Any) -> tuple[_Option, ...]:
    return tuple(
        _Option(tuple(p.opts), _line(p.help or ""), None if p.is_flag else _values(p.metavar or ""))
        for p in command.params
        if p.param_type_name == "option"
    )


def _global_options() -> tuple[_Option, ...]:
    found = []
    for spelled, summary in GLOBAL_HELP:
        names, _, value = spelled.partition(" DIR")
        found.append(_Option(tuple(names.split(", ")), summary, () if spelled != names or value else None))
    return (*found, _Option(("--help",), "Show this message and exit", None))


def _values(metavar: str) -> tuple[str, ...]:
    from toktier.certify.levels import Level
    from toktier.gpu.architectures import ARCHITECTURES
    from toktier.routing.vocabulary import AUTO, BackendId, Device, RoutingPolicy
    from toktier_cli.verbs.encode import FORMATS

    if metavar == "FAMILY":
        return tuple(name for name, _ in _families())
    return {
        "POLICY": tuple(RoutingPolicy),
        "DEVICE": tuple(Device),
        "BACKEND": (AUTO, *BackendId),
        "FORMAT": FORMATS,
        "LEVEL": tuple(Level),
        "ARCH": ARCHITECTURES,
    }.get(metavar, ())


def _argument_words(path: str, command: Any) -> tuple[tuple[str, str], ...]:
    from toktier_cli.verbs import help as help_verb
    from toktier_cli.verbs import schema

    if path == "help":
        return tuple(help_verb.TOPICS.items())
    if path == "schema":
        return tuple((name, "") for name in schema.names())
    if path == "completion":
        return tuple((shell, "") for shell in SHELLS)
    metavars = [p.metavar or "" for p in command.params if p.param_type_name == "argument"]
    return _families() if any("FAMILY" in metavar for metavar in metavars) else ()


def _families() -> tuple[tuple[str, str], ...]:
    from toktier.artifacts.pins import shipped_pins

    return tuple((name, family.repo_id or "") for name, family in sorted(shipped_pins().families.items()))


def _line(text: str) -> str:
    return re.sub(r"\s+", " ", text).strip().rstrip(".")


# bash: words only


def _bash(places: dict[str, _Place]) -> str:
    return "\n".join(
        [
            *_heading("bash"),
            "_toktier() {",
            "    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} path= words= i next",
            "    for ((i = 1; i < COMP_CWORD; i++)); do",
            "        next=${path:+$path }${COMP_WORDS[i]}",
            f"        case $next in {_patterns(places)}) path=$next ;; esac",
            "    done",
            "    COMPREPLY=()",
            "    case $prev in",
            *_value_cases(places, lambda values: f'words="{" ".join(values)}"', "words=; return"),
            "        *)",
            "            case $cur in",
            "                -*) case $path in",
            *(
                f'                    {_pattern(path)}) words="{" ".join(_spellings(place))}" ;;'
                for path, place in places.items()
            ),
            "                    esac ;;",
            "                *) case $path in",
            *(
                f'                    {_pattern(path)}) words="{" ".join(word for word, _ in place.words)}" ;;'
                for path, place in places.items()
                if place.words
            ),
            "                    esac ;;",
            "            esac ;;",
            "    esac",
            '    mapfile -t COMPREPLY < <(compgen -W "$words" -- "$cur")',
            "}",
            "complete -o default -F _toktier toktier",
            "",
        ]
    )


# zsh: words with summaries


def _zsh(places: dict[str, _Place]) -> str:
    def described(rows: Iterator[tuple[str, str]]) -> str:
        return " ".join(shlex.quote(word.replace(":", "\\:") + (f":{said}" if said else "")) for word, said in rows)

    lines = [
        "#compdef toktier",
        *_heading("zsh"),
        "_toktier() {",
        "    local verb= next; local -a flags values; integer i files=0",
        "    for ((i = 2; i < CURRENT; i++)); do",
        "        next=${verb:+$verb }$words[i]",
        f"        case $next in {_patterns(places)}) verb=$next ;; esac",
        "    done",
        "    case $words[CURRENT-1] in",
        *_value_cases(
            places, lambda values: f"compadd -- {' '.join(map(shlex.quote, values))}; return", "_files; return"
        ),
        "    esac",
        "    case $verb in",
    ]
    for path, place in places.items():
        options = ((s, o.summary) for o in place.options for s in o.spellings)
        lines += [
            f"        {_pattern(path)})",
            f"            flags=({described(options)})",
            f"            values=({described(iter(place.words))})",
            f"            files={int(place.takes_files)} ;;",
        ]
    return "\n".join(
        [
            *lines,
            "    esac",
            "    if [[ $words[CURRENT] == -* ]]; then",
            "        _describe -o option flags",
            "    else",
            "        (( $#values )) && _describe word values",
            "        (( files )) && _files",
            "    fi",
            "}",
            'if [[ $funcstack[1] == _toktier ]]; then _toktier "$@"; else compdef _toktier toktier; fi',
            "",
        ]
    )


# fish: one line for each word


def _fish(places: dict[str, _Place]) -> str:
    lines = [
        *_heading("fish"),
        "function __toktier_at",
        "    set -l path ''",
        "    for word in (commandline -opc)[2..-1]",
        '        set -l next (string trim -- "$path $word")',
        f"        contains -- $next {' '.join(shlex.quote(path) for path in places if path)}; and set path $next",
        "    end",
        '    test "$path" = "$argv[1]"',
        "end",
    ]
    for path, place in places.items():
        at = f"complete -c toktier -n \"__toktier_at '{path}'\""
        if not place.takes_files:
            lines.append(f"{at} -f")
        lines += [f"{at} -a {shlex.quote(word)} -d {_fish_quoted(said)}" for word, said in place.words]
        for option in place.options:
            spelled = " ".join(f"-l {s[2:]}" if s.startswith("--") else f"-s {s[1:]}" for s in option.spellings)
            takes = "" if option.values is None else " -r"
            if option.values:
                takes += f" -a {shlex.quote(' '.join(option.values))}"
            lines.append(f"{at} {spelled}{takes} -d {_fish_quoted(option.summary)}")
    return "\n".join([*lines, ""])


def _fish_quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


# shared


def _heading(shell: str) -> Iterator[str]:
    yield f"# {shell} completion of toktier, made by: toktier completion {shell}"


def _patterns(places: dict[str, _Place]) -> str:
    return "|".join(_pattern(path) for path in places if path)


def _pattern(path: str) -> str:
    return f'"{path}"'


def _spellings(place: _Place) -> list[str]:
    return [spelling for option in place.options for spelling in option.spellings]


def _value_cases(places: dict[str, _Place], known: Any, free: str) -> Iterator[str]:
    """A case for each option with a value, by its spelling: a spelling means the same wherever it is taken."""
    seen: dict[str, tuple[str, ...]] = {}
    for place in places.values():
        for option in place.options:
            if option.values is not None:
                for spelling in option.spellings:
                    seen[spelling] = seen.get(spelling) or option.values
    by_values: dict[tuple[str, ...], list[str]] = {}
    for spelling, values in seen.items():
        by_values.setdefault(values, []).append(spelling)
    for values, spellings in by_values.items():
        yield f"        {'|'.join(spellings)}) {known(values) if values else free} ;;"
