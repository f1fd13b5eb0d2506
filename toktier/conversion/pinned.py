"""Which converter derives a pinned family: the one that reads exactly the files which the pins say it is derived from.

The pins name families and digests, the converters know files; neither knows the other. Not here: where inputs come from
(`toktier.artifacts.derive`), how each converter works.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from toktier.conversion import ranks_with_module, tekken
from toktier.errors import UnsupportedConfig


@dataclass(frozen=True, slots=True)
class Converter:
    """`convert` takes the contents of `inputs`, in that order, and gives a tokenizer.json. A change of its output needs
    a new name: digests are pinned against it."""

    name: str
    inputs: tuple[str, ...]
    convert: Callable[..., bytes]

    def run(self, contents: Mapping[str, bytes]) -> bytes:
        """The tokenizer.json. Raises ArtifactDamaged or UnsupportedConfig for inputs that cannot be converted."""
        return self.convert(*(contents[name] for name in self.inputs))


CONVERTERS = (
    Converter(
        "ranks_with_module_v1",
        ("tiktoken.model", "tokenization_kimi.py", "tokenizer_config.json"),
        ranks_with_module.convert,
    ),
    Converter("tekken_v1", (tekken.FILE,), tekken.convert),
)


def converter_of(inputs: Iterable[str]) -> Converter:
    """The converter that reads these files. Raises UnsupportedConfig when this version has none."""
    names = set(inputs)
    for converter in CONVERTERS:
        if set(converter.inputs) == names:
            return converter
    raise UnsupportedConfig(
        f"no converter of this version reads {', '.join(sorted(names)) or 'nothing'}",
        details={"inputs": sorted(names), "converters": [c.name for c in CONVERTERS]},
        remedy="install a newer toktier",
    )


def converter_named(name: str) -> Converter:
    """The converter of this name. KeyError when there is none."""
    return {converter.name: converter for converter in CONVERTERS}[name]
