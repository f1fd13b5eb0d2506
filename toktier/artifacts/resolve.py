"""From a family's name to a verified tokenizer.json on this host: what loading needs.

The cache, then what lies on this host anyway, then the network unless offline. A blob in the cache that is damaged ends
the search: nothing else is handed out in its place until someone fetches it again.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from toktier.artifacts.cache import ArtifactCache
from toktier.artifacts.local_artifacts import find_local, is_local_name
from toktier.artifacts.pins import Family, Pins, shipped_file, shipped_pins
from toktier.config import Settings
from toktier.errors import ArtifactNotFound, ConfigInvalid, EnvironmentFault

if TYPE_CHECKING:  # the sources and their archive readers cost 10 ms, which a load from the cache does not pay
    from toktier.artifacts.fetch import Notify
    from toktier.artifacts.recognise import Found


@dataclass(frozen=True, slots=True)
class Artifact:
    """A tokenizer.json whose bytes were checked against the pin. `source` is cache, shipped, or where it was found."""

    family: Family
    path: Path
    sha256: str
    size: int
    source: str


def obtain(name: str, settings: Settings, *, pins: Pins | None = None, notify: Notify | None = None) -> Artifact:
    """The tokenizer.json of a family, verified. Raises UnknownFamily, ArtifactHashMismatch or ArtifactDamaged for a bad
    blob, ArtifactNotFound offline, SourceUnreachable when no source has it."""
    pins = pins or shipped_pins()
    if is_local_name(name):
        return _registered(name, settings)
    family = pins.family(name)
    artifact = on_this_host(family, settings, pins)
    if artifact is not None:
        return artifact
    from toktier.artifacts.fetch import fetch, not_found

    report = fetch(name, settings, pins=pins, notify=notify)
    if not report.loadable:
        raise not_found(family, settings, report)
    artifact = _cached(family, settings)
    if artifact is None:
        raise ArtifactNotFound(
            f"{name} left the cache while it was being loaded", details={"family": name}, remedy="load it again"
        )
    return artifact


def _registered(name: str, settings: Settings) -> Artifact:
    """A local artifact: the cache is the only place that can have it."""
    family = find_local(name, ArtifactCache.readable(settings))
    artifact = _cached(family, settings)
    if artifact is None:
        raise ArtifactNotFound(
            f"{name} is registered and its tokenizer.json is not in the cache",
            details={"family": name, "expected_sha256": family.tokenizer.sha256},
            remedy=f"toktier artifacts import PATH --as {name}",
        )
    return artifact


def on_this_host(family: Family, settings: Settings, pins: Pins) -> Artifact | None:
    """As `obtain`, without a network: None where no place on this host has the file."""
    if family.shipped:
        return Artifact(family, shipped_file(family), family.tokenizer.sha256, family.tokenizer.size, "shipped")
    return _cached(family, settings) or _elsewhere(family, settings, pins)


def _cached(family: Family, settings: Settings) -> Artifact | None:
    cache = ArtifactCache.readable(settings)
    if cache is None:
        return None
    pin = family.tokenizer
    state = cache.state(pin)
    if state.status == "damaged":
        raise cache.damage(pin, state)
    return Artifact(family, state.path, pin.sha256, pin.size, "cache") if state.status == "ok" else None


def _elsewhere(family: Family, settings: Settings, pins: Pins) -> Artifact | None:
    from toktier.artifacts import local_sources

    wanted = {family.tokenizer.sha256}
    for found in local_sources.installed_packages(pins, wanted):
        return _kept(family, settings, found, "installed")
    for found in local_sources.hub_cache(family, pins, wanted):
        return _kept(family, settings, found, "hub-cache")
    return None


def _kept(family: Family, settings: Settings, found: Found, source: str) -> Artifact:
    """A copy in the cache, so that the next look-up is short; the file itself where there is no cache to write to."""
    from toktier.artifacts.fetch import origin

    pin = family.tokenizer
    where = origin(source, family, found)
    try:
        cache = ArtifactCache.of(settings)
        cache.store(pin, found.data)
    except (ConfigInvalid, EnvironmentFault):
        if found.path is None:
            raise
        return Artifact(family, found.path, pin.sha256, pin.size, where)
    cache.note(family.name, {pin.name: pin.sha256}, where)
    return Artifact(family, cache.blob_path(pin.sha256), pin.sha256, pin.size, where)
