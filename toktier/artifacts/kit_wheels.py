"""The wheels of a kit: our own, built from the checkout or given, and what it needs on the target, brought by pip.

The public package of the same name is not ours: no index is ever asked for it, and a wheel is taken for ours only if it
holds the pins. pip evaluates environment markers for the Python that runs it, so each round of downloads is checked
against the target's markers, and what lacks is asked for by name. Not here: the layout of a kit (`kit`).
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from toktier import resources
from toktier.artifacts.network_client import last_line, run_client
from toktier.artifacts.pins import Pins, parse_pins
from toktier.artifacts.wheel_target import Target, Wheel, damaged, member, parse_platform, parse_python, read_wheel
from toktier.errors import (
    BackendUnavailable,
    BundleInvalid,
    RegistryInvalid,
    SourceUnreachable,
    UsageError,
)
from toktier.labels import shown

OWN_NAME = "toktier"
PINS_MEMBER = "toktier/data/tables/artifact_pins.json"
SIGN_EXTRA = "sign"  # brings what verifies signatures
MAX_PINS_BYTES = 64 << 20
MAX_ROUNDS = 5
CONNECT_SECONDS = "15"
Notify = Callable[[str], None]


def checkout() -> Path | None:
    """The checkout that this toktier runs from, or None where it was installed from a wheel."""
    root = resources.data_root()
    return root if (root / "tools" / "dev.py").is_file() and (root / "pyproject.toml").is_file() else None


def own_wheel(given: Path | None, scratch: Path, timeout: float, notify: Notify) -> Wheel:
    """Our own wheel: the file that was given, or one built from the checkout into `scratch`; never from an index."""
    if given is not None:
        wheel = read_wheel(given)
    elif (root := checkout()) is not None:
        notify("building the wheel of toktier (a minute at most)")
        wheel = read_wheel(_build(root, scratch, timeout))
    else:
        raise UsageError(
            "this toktier was installed from a wheel, and a kit needs that wheel: expected --wheel FILE (the package"
            f" {OWN_NAME} of a public index is another project)",
            remedy="give the file that was installed with --wheel FILE, or make one in a checkout: "
            "python3 tools/dev.py wheel",
        )
    if wheel.name != OWN_NAME:
        raise UsageError(f"--wheel {wheel.path.name} is not a wheel of {OWN_NAME}", details={"path": str(wheel.path)})
    return wheel


def own_pins(wheel: Wheel) -> Pins:
    """The pins in our own wheel: what the other side will hold a bundle to. UsageError for another project's wheel."""
    try:
        return parse_pins(member(wheel.path, PINS_MEMBER, MAX_PINS_BYTES), f"{PINS_MEMBER} of {wheel.path.name}")
    except BundleInvalid:
        raise UsageError(
            f"{wheel.path.name} holds no pins ({PINS_MEMBER}), so it is not a wheel of this project; the package"
            f" {OWN_NAME} of a public index is another one",
            details={"path": str(wheel.path)},
            remedy="python3 tools/dev.py wheel  # in a checkout",
        ) from None
    except RegistryInvalid as error:
        raise damaged(wheel.path, error.message) from None


def target_of(wheel: Wheel, python: str | None, platform: str | None) -> Target:
    """The target that was asked for; what is not said is what our own wheel is made for.

    Raises UsageError where the wheel does not run there.
    """
    made_for = next(iter(sorted(wheel.tags, key=str)))
    if python is None:
        python = f"{made_for.interpreter[2]}.{made_for.interpreter[3:]}" if made_for.interpreter[:2] == "cp" else ""
    if platform is None:
        named = [tag.platform for tag in wheel.tags if tag.platform.startswith("manylinux")]
        if not named:
            raise UsageError(
                f"{wheel.path.name} does not say which glibc it needs: expected a manylinux wheel",
                details={"path": str(wheel.path)},
                remedy="python3 tools/dev.py wheel  # in a checkout",
            )
        platform = min(named, key=lambda text: parse_platform(text)[0])
    target = Target(parse_python(python), *parse_platform(platform))
    if not wheel.runs_on(target):
        raise UsageError(
            f"{wheel.path.name} does not run on {target}: it is made for {', '.join(sorted(map(str, wheel.tags)))}",
            details={"wheel": wheel.path.name, "python": target.python_text, "platform": target.platform},
            remedy=f"make a wheel with Python {target.python_text} on a host with glibc 2.{target.glibc} or older"
            " (python3 tools/dev.py wheel), and give it with --wheel FILE",
        )
    return target


def require_extra(own: Wheel, target: Target, extra: str) -> None:
    """UsageError where our own wheel knows no such extra: pip would install it without, and only warn."""
    if len(list(own.needs(target, frozenset({extra})))) == len(list(own.needs(target, frozenset()))):
        raise UsageError(
            f"{own.path.name} has no extra {extra}, so what is signed could not be verified where it is installed",
            details={"wheel": own.path.name, "extra": extra},
            remedy="python3 tools/dev.py wheel  # in a checkout; then --wheel FILE",
        )


def dependency_wheels(
    own: Wheel,
    target: Target,
    scratch: Path,
    *,
    extras: frozenset[str] = frozenset(),
    offline: bool,
    timeout: float,
) -> list[Wheel]:
    """Wheels of everything that our own wheel with `extras` needs on `target`, by name; downloaded into `scratch`,
    wheels only.

    `offline`: pip asks no index, only the folders that its own settings name (PIP_FIND_LINKS). `timeout` in seconds for
    each round. Raises SourceUnreachable naming the requirement.
    """
    asked = _spelled(_own_needs(own, target, extras))
    for number in range(MAX_ROUNDS):
        folder = scratch / str(number)
        folder.mkdir()
        if asked:
            _pip_download(sorted(asked), target, folder, offline, timeout)
        wheels = {wheel.name: wheel for wheel in map(read_wheel, sorted(folder.iterdir()))}
        if OWN_NAME in wheels:
            raise BundleInvalid(
                f"a dependency brought a package named {OWN_NAME} from the index, which is another project's",
                details={"wheel": wheels[OWN_NAME].path.name},
                remedy="check pip's index settings (`pip config list`)",
            )
        needed, lacking = _closure(_own_needs(own, target, extras), wheels, target)
        if not lacking:
            return [wheels[name] for name in sorted(needed)]
        asked |= _spelled(lacking)
        shutil.rmtree(folder)
    raise SourceUnreachable(
        f"pip's answers do not come together for {target}: still lacking {', '.join(sorted(_spelled(lacking)))}",
        details={"lacking": sorted(_spelled(lacking))},
        remedy=f"make the kit with Python {target.python_text}",
    )


def _own_needs(own: Wheel, target: Target, extras: frozenset[str]) -> list[Requirement]:
    return [r for r in own.needs(target, extras) if canonicalize_name(r.name) != OWN_NAME]


def _spelled(requirements: list[Requirement]) -> set[str]:
    """Without markers: they were evaluated for the target, and pip would do so again for this host."""
    spelled = set()
    for requirement in requirements:
        plain = Requirement(str(requirement))
        plain.marker = None
        spelled.add(str(plain))
    return spelled


def _closure(first: list[Requirement], wheels: dict[str, Wheel], target: Target) -> tuple[set[str], list[Requirement]]:
    """Names of the wheels that `first` and they themselves need, and the requirements that none of them meets."""
    reached: dict[str, frozenset[str]] = {}
    lacking: list[Requirement] = []
    queue = list(first)
    while queue:
        requirement = queue.pop()
        name = canonicalize_name(requirement.name)
        wheel = wheels.get(name)
        if wheel is None or not requirement.specifier.contains(wheel.version, prereleases=True):
            lacking.append(requirement)
            continue
        extras = frozenset(map(canonicalize_name, requirement.extras)) | reached.get(name, frozenset())
        if reached.get(name) != extras:
            reached[name] = extras
            queue += wheel.needs(target, extras)
    return set(reached), lacking


def _build(root: Path, scratch: Path, timeout: float) -> Path:
    command = [sys.executable, str(root / "tools" / "dev.py"), "wheel", "--out", str(scratch)]
    code, _, stderr = run_client(command, timeout, "build of the wheel", "checkout")
    built = sorted(scratch.glob("*.whl"))
    if code or len(built) != 1:
        raise BackendUnavailable(
            f"the wheel of toktier cannot be built: {_last_said(stderr)}",
            details={"exit_status": code},
            remedy="python3 tools/dev.py wheel  # says more; then --wheel FILE",
        )
    return built[0]


def _pip_download(requirements: list[str], target: Target, folder: Path, offline: bool, timeout: float) -> None:
    command = [
        sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input", "--quiet",
        "--retries", "1", "--timeout", CONNECT_SECONDS,
        "download", "--only-binary=:all:", "--dest", str(folder),
        "--implementation", "cp", "--python-version", target.python_text,
        *(word for platform in target.platforms for word in ("--platform", platform)),
        *(["--no-index"] if offline else []),
        *requirements,
    ]  # fmt: skip
    code, _, stderr = run_client(command, timeout, "download of the wheels", "pip", environment={"PIP_NO_COLOR": "1"})
    if "No module named pip" in stderr:
        raise BackendUnavailable(
            f"pip is not installed for {sys.executable}, and it brings the wheels of a kit",
            remedy=f"{sys.executable} -m ensurepip --upgrade",
        )
    if code:
        how = " (offline: no index was asked)" if offline else ""
        raise SourceUnreachable(
            f"pip cannot bring the wheels for {target}{how}: {_pip_reason(stderr)}",
            details={"requirements": requirements, "exit_status": code, "offline": offline},
            remedy="check pip's index settings (`pip config list`), or name a folder with the wheels in PIP_FIND_LINKS",
        )


def _pip_reason(stderr: str) -> str:
    """The errors of pip that name a requirement, else the last thing that it said."""
    errors = [line.removeprefix("ERROR: ") for line in stderr.splitlines() if line.startswith("ERROR: ")]
    return shown("; ".join(errors), 400) if errors else _last_said(stderr)


def _last_said(stderr: str) -> str:
    return shown(last_line(stderr), 300) or "it gave no reason"
