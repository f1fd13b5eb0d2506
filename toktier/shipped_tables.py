"""Tables that come with the package: read whole, held to their form, or refused with one error.

Every JSON table of the package is read through here, so that a missing, unreadable or edited one is REGISTRY_INVALID in
the same words everywhere. Not here: what a table says (`artifacts.pins`, `artifacts.siblings`, `artifacts.licences`,
`evidence.registry`).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from toktier import resources
from toktier.errors import RegistryInvalid

REMEDY = "install toktier again"


def read_table(file_name: str, called: str) -> tuple[bytes, str]:
    """The bytes of a shipped table and its path. `called`: what a message calls it. Raises RegistryInvalid."""
    path = resources.tables_dir() / file_name
    try:
        return path.read_bytes(), str(path)
    except OSError as error:
        raise RegistryInvalid(
            f"the {called} cannot be read: {error.strerror}", details={"file": str(path)}, remedy=REMEDY
        ) from None


@contextmanager
def held_to_form(called: str, where: str) -> Iterator[None]:
    """Whatever a parser of table data stumbles over, as RegistryInvalid that names the table and the problem."""
    try:
        yield
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        problem = f"lacks {error}" if isinstance(error, KeyError) else str(error)
        raise RegistryInvalid(
            f"the {called} {where} is damaged: {problem}", details={"file": where}, remedy=REMEDY
        ) from None


def demand_schema(document: Any, schema: str, version: int) -> None:
    """ValueError for a document of another schema or version; KeyError where it names none."""
    if document["schema"] != schema or document["schema_version"] != version:
        raise ValueError(f"expected {schema} of version {version}")


def demand_digest(claimed: str, observed: str) -> None:
    """ValueError where the root digest that a table claims is not that of its content."""
    if claimed != observed:
        raise ValueError(f"root_digest is {claimed}, its content gives {observed}")
