"""A third-party engine of one tokenizer that is being loaded: given the file now, so that what it says of it is known.

Not here: when one may run (`toktier.routing.plan`), what it does with texts (`toktier.routing.third_party_route`).
"""

from __future__ import annotations

from toktier.backends.fast_cpu import FastCpuBackend
from toktier.backends.hf import ArtifactSource, HfBackend
from toktier.backends.third_party import Template, open_backend
from toktier.errors import BackendExecutionFault, UnsupportedConfig
from toktier.routing.plan import Plan
from toktier.routing.probe import Problem
from toktier.routing.third_party_route import ThirdPartyRoute
from toktier.routing.vocabulary import Reason

FILE_GATE, PROCESS_GATE = "file", "process"


def opened(
    plan: Plan, source: ArtifactSource, native: FastCpuBackend | None, reference: HfBackend
) -> tuple[Plan, ThirdPartyRoute | None]:
    """The plan that holds, and the way to the engine that `plan` lets serve; None where it refuses the file."""
    assert plan.serves is not None
    assert plan.facts.third_party is not None
    changes_length = reference.changes_length if native is None else native.changes_length
    try:
        backend = open_backend(plan.serves, source, changes_length, _template(native, reference))
    except BackendExecutionFault as fault:
        if fault.details.get("forked"):
            return plan.without(Problem(PROCESS_GATE, Reason.BACKEND_FORKED, fault.message)), None
        text = f"it cannot load the file: {fault.details['engine']}"
        return plan.without(Problem(FILE_GATE, Reason.BACKEND_REFUSED_FILE, text)), None
    return plan, ThirdPartyRoute(plan, backend, reference, plan.facts.third_party.version or "")


def _template(native: FastCpuBackend | None, reference: HfBackend) -> Template:
    """Ids that the template puts before and after a text. Raises UnsupportedConfig for one that does more than that."""
    if native is not None:
        return lambda: native.template
    return lambda: _asked(reference)


def _asked(reference: HfBackend) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The same of a file beyond the compiler: what the reference puts around a text."""
    tokenizer = reference.load()
    bare = tokenizer.encode("a", add_special_tokens=False).ids
    whole = tokenizer.encode("a", add_special_tokens=True)
    before = next((n for n, mark in enumerate(whole.special_tokens_mask) if not mark), len(whole.ids))
    if whole.ids[before : before + len(bare)] != bare:
        raise UnsupportedConfig(
            "the template of the file does more than put tokens before and after a text",
            remedy="encode without add_special_tokens, or use another backend",
        )
    return tuple(whole.ids[:before]), tuple(whole.ids[before + len(bare) :])
