"""What a tokenizer_config.json, a special_tokens_map.json and keywords say to a loader: names of special tokens, sides,
limits. Not here: added tokens that they declare beyond the tokenizer.json (`toktier.program.side_file`; opening with
`sidecar="merge"` adds them), chat templates.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from toktier.compat.call_options import ATTENTION_MASK, INPUT_IDS, NO_LIMIT, SIDES, InvalidCall
from toktier.compat.refused import TEMPLATE_FLAGS
from toktier.errors import ArtifactNotFound, UnsupportedConfig
from toktier.labels import shown_path
from toktier.program.strict_json import parse_json

NAMED = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
_EXTRA = ("extra_special_tokens", "additional_special_tokens")
_MOST_BYTES = 64 << 20
# What would change ids, and is not followed: in a file, and as a keyword.
_UNFOLLOWED = ("fix_mistral_regex",)
_UNFOLLOWED_SETTINGS = (*_UNFOLLOWED, "tokenizer_object", "gguf_file", "vocab_file", "vocab", "merges")


@dataclass(slots=True)
class LoaderConfig:
    """`add_bos_token`, `add_eos_token`: None where nobody says; where one is given, both together stand in place of the
    template of the file. `max_length`: tokens a model takes."""

    named: dict[str, str] = field(default_factory=dict)
    extra: list[str] = field(default_factory=list)
    max_length: int = NO_LIMIT
    padding_side: str | None = None
    truncation_side: str | None = None
    input_names: list[str] = field(default_factory=lambda: [INPUT_IDS, ATTENTION_MASK])
    clean_up: bool = False
    clean_up_bpe: bool = False
    split_special: bool = False
    add_bos_token: bool | None = None
    add_eos_token: bool | None = None


def read_config(value: Mapping[str, Any] | str | os.PathLike[str] | None) -> dict[str, Any]:
    """The object of a file, of a mapping, or of nothing. Raises ArtifactNotFound, ArtifactDamaged, InvalidCall."""
    if value is None:
        return {}
    if isinstance(value, Mapping):
        return dict(value)
    path = Path(value)
    try:
        with path.open("rb") as file:
            data = file.read(_MOST_BYTES + 1)
    except OSError as error:
        raise ArtifactNotFound(
            f"{shown_path(path)} cannot be read: {error.strerror}", details={"path": str(path)}, remedy="check the path"
        ) from None
    document = parse_json(data, shown_path(path))
    if len(data) > _MOST_BYTES or not isinstance(document, dict):
        raise InvalidCall(f"{shown_path(path)}: expected an object of at most {_MOST_BYTES} bytes")
    return document


def loaded_values(
    config: Mapping[str, Any], special_tokens_map: Mapping[str, Any], settings: Mapping[str, Any]
) -> dict[str, Any]:
    """What a loader that finds a tokenizer.json takes of these: the file's template counts, and not the flags of the
    config; the map of special tokens goes before a config that has no table of added tokens, and is passed over else.

    Raises UnsupportedConfig for members that would change ids.
    """
    for given, unfollowed in ((config, _UNFOLLOWED), (settings, _UNFOLLOWED_SETTINGS)):
        for name in unfollowed:
            if given.get(name):
                raise UnsupportedConfig(
                    f"{name} is given, which changes ids and is not followed",
                    details={"argument": name},
                    remedy=f"leave {name} out, or make a tokenizer.json of it first",
                )
    values = {name: value for name, value in config.items() if name not in TEMPLATE_FLAGS}
    if "added_tokens_decoder" not in config:
        values |= special_tokens_map
    return {**values, **settings}


def loader_config(values: Mapping[str, Any]) -> LoaderConfig:
    """Members that nobody follows at a call (`tokenizer_class`, `legacy`, ...) are passed over, as transformers does.

    Raises InvalidCall for values of another kind.
    """
    config = LoaderConfig()
    names = [*NAMED, *(name for name in values if name.endswith("_token") and name not in NAMED)]
    for name in names:
        value = values.get(name)
        if value is not None and not isinstance(value, bool):  # add_bos_token and its like are flags
            config.named[name] = _content(value, name)
    extra: Any = next((values[name] for name in _EXTRA if values.get(name)), [])
    if isinstance(extra, Mapping):
        config.named |= {str(name): _content(value, str(name)) for name, value in extra.items()}
    elif isinstance(extra, (list, tuple)):
        config.extra = [_content(value, _EXTRA[0]) for value in extra]
    else:
        raise _odd(_EXTRA[0], "a list or an object of tokens", extra)
    limit = next((values[name] for name in ("model_max_length", "max_len") if values.get(name) is not None), NO_LIMIT)
    if isinstance(limit, bool) or not isinstance(limit, (int, float)):
        raise _odd("model_max_length", "a number of tokens", limit)
    config.max_length = int(limit)
    for name in ("padding_side", "truncation_side"):
        value = values.get(name)
        if value is not None and value not in SIDES:
            raise _odd(name, f"one of {', '.join(SIDES)}", value)
        setattr(config, name, value)
    if values.get("model_input_names") is not None:
        config.input_names = [str(name) for name in values["model_input_names"]]
    config.clean_up = bool(values.get("clean_up_tokenization_spaces"))
    config.clean_up_bpe = bool(values.get("clean_up_tokenization_spaces_for_bpe_even_though_it_will_corrupt_output"))
    config.split_special = bool(values.get("split_special_tokens"))
    for name in TEMPLATE_FLAGS:
        setattr(config, name, bool(values[name]) if name in values else None)
    return config


def _content(value: Any, name: str) -> str:
    content = value.get("content") if isinstance(value, Mapping) else getattr(value, "content", value)
    if not isinstance(content, str):
        raise _odd(name, "a token", value)
    return content


def _odd(name: str, expected: str, value: object) -> InvalidCall:
    return InvalidCall(
        f"{name} is {value!r}: expected {expected}", details={"argument": name}, remedy=f"correct {name}"
    )
