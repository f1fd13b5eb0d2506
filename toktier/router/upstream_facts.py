"""What a llama-server says of itself, read out of its answers: the process, the model, the slots.

Every value is a claim of another program: what is not of its kind is refused as no answer of a llama-server. Not here:
asking (`upstream`), nor what follows from a difference (`upstream_state`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import orjson

from toktier.errors import UpstreamBroken

MAX_SLOTS: Final = 4096
MAX_NAME: Final = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotReport:
    """One slot, as it is shown. `tokens`: held, those of the prompt and all generated ones but the last; None: not
    shown, as of a slot that has had no task. `id_task`: the last task in it; grows while the process lives."""

    id: int
    n_ctx: int
    busy: bool
    tokens: int | None
    id_task: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class UpstreamFacts:
    """`n_ctx`: tokens of one slot. `model`: the name under which requests ask for it. `process`: random, new with every
    start; None: a version that has none. `n_vocab`: rows of the embedding, often more than the tokenizer has IDs; None:
    not said. `shows_slots`: whether GET /slots is answered."""

    total_slots: int
    n_ctx: int
    model: str
    model_path: str
    build: str
    process: str | None
    shows_slots: bool
    n_vocab: int | None = None

    @property
    def identity(self) -> tuple[object, ...]:
        """Equal for two answers of one process; of others with certainty only where `process` is said."""
        return (self.process, self.build, self.model_path, self.total_slots, self.n_ctx)


def read_facts(props: bytes) -> UpstreamFacts:
    """Of GET /props. Raises UpstreamBroken."""
    members = _object(props, "/props")
    settings = members.get("default_generation_settings")
    n_ctx = settings.get("n_ctx") if isinstance(settings, dict) else None
    marker = members.get("media_marker")
    return UpstreamFacts(
        total_slots=_count(members.get("total_slots"), "/props", "total_slots", 1, MAX_SLOTS),
        n_ctx=_count(n_ctx, "/props", "n_ctx", 1),
        model=_name(members.get("model_alias")),
        model_path=_name(members.get("model_path")),
        build=_name(members.get("build_info")),
        process=marker[:MAX_NAME] if isinstance(marker, str) and marker else None,
        shows_slots=members.get("endpoint_slots") is not False,
    )


def read_vocabulary_size(models: bytes) -> int | None:
    """Of GET /v1/models; None: not said. Raises UpstreamBroken."""
    data = _object(models, "/v1/models").get("data")
    first = data[0] if isinstance(data, list) and data else None
    meta = first.get("meta") if isinstance(first, dict) else None
    size = meta.get("n_vocab") if isinstance(meta, dict) else None
    return None if size is None else _count(size, "/v1/models", "n_vocab", 1)


def read_slots(slots: bytes, total: int) -> list[SlotReport]:
    """Of GET /slots, by their numbers. Raises UpstreamBroken."""
    try:
        rows = orjson.loads(slots)
    except orjson.JSONDecodeError:
        raise UpstreamBroken("/slots answered with what is no JSON") from None
    if not isinstance(rows, list) or len(rows) != total or not all(isinstance(row, dict) for row in rows):
        raise UpstreamBroken(f"/slots answered with what is no list of {total} slots")
    reports = [
        SlotReport(
            id=_count(row.get("id"), "/slots", "id", 0, total - 1),
            n_ctx=_count(row.get("n_ctx"), "/slots", "n_ctx", 1),
            busy=row.get("is_processing") is True,
            tokens=_count_or_none(row, "n_prompt_tokens"),
            id_task=_count_or_none(row, "id_task", -1),
        )
        for row in rows
    ]
    if [report.id for report in reports] != list(range(total)):
        raise UpstreamBroken("/slots answered with slots that are not numbered from 0 on")
    return reports


def read_ids(answer: bytes, limit: int) -> list[int]:
    """Of POST /tokenize: at most `limit` IDs. Raises UpstreamBroken."""
    tokens = _object(answer, "/tokenize").get("tokens")
    if not isinstance(tokens, list) or len(tokens) > limit or not set(map(type, tokens)) <= {int}:
        raise UpstreamBroken("/tokenize answered with what is no list of token IDs")
    if tokens and not 0 <= min(tokens) <= max(tokens) < 2**31:
        raise UpstreamBroken("/tokenize answered with a number that is no token ID")
    return tokens


def read_prompt(answer: bytes) -> str:
    """Of POST /apply-template. Raises UpstreamBroken."""
    prompt = _object(answer, "/apply-template").get("prompt")
    if not isinstance(prompt, str):
        raise UpstreamBroken("/apply-template answered without a prompt")
    return prompt


def _object(answer: bytes, path: str) -> dict[str, Any]:
    try:
        members = orjson.loads(answer)
    except orjson.JSONDecodeError:
        raise UpstreamBroken(f"{path} answered with what is no JSON") from None
    if not isinstance(members, dict):
        raise UpstreamBroken(f"{path} answered with what is no JSON object")
    return members


def _count(value: Any, path: str, name: str, least: int, most: int = 2**31 - 1) -> int:
    if type(value) is not int or not least <= value <= most:
        raise UpstreamBroken(f"{path} answered with a {name} that is no integer from {least} to {most}")
    return value


def _count_or_none(row: dict[str, Any], name: str, least: int = 0) -> int | None:
    value = row.get(name)
    return None if value is None else _count(value, "/slots", name, least)


def _name(value: Any) -> str:
    return value[:MAX_NAME] if isinstance(value, str) else ""
