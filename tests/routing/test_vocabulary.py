"""The tables of routing: complete, closed, and refusing what is not in them by name."""

from __future__ import annotations

import re

import pytest

from toktier import errors
from toktier.errors import ConfigInvalid
from toktier.routing import vocabulary as v


def test_every_reason_has_a_meaning_and_a_well_formed_code() -> None:
    assert set(v.REASON_MEANINGS) == set(v.Reason)
    assert all(re.fullmatch(r"R_[A-Z]+(_[A-Z]+)*", reason.value) for reason in v.Reason)


def test_errors_about_kernels_name_reasons() -> None:
    kinds = (errors.KernelsUnavailable, errors.KernelBuildFailed, errors.KernelDigestMismatch)
    assert len({v.Reason(kind.reason) for kind in kinds}) == len(kinds)


def test_every_policy_has_a_rule_and_certified_is_stricter_than_supported_than_experimental() -> None:
    assert set(v.POLICIES) == set(v.RoutingPolicy)
    statuses = {policy: rule.statuses for policy, rule in v.POLICIES.items()}
    assert statuses[v.RoutingPolicy.CERTIFIED] < statuses[v.RoutingPolicy.SUPPORTED]
    assert statuses[v.RoutingPolicy.SUPPORTED] < statuses[v.RoutingPolicy.EXPERIMENTAL]
    assert not statuses[v.RoutingPolicy.REFERENCE]
    never = {v.Status.UNSUPPORTED, v.Status.REFERENCE_ONLY}
    assert not any(never & admitted for admitted in statuses.values())
    assert [p for p, rule in v.POLICIES.items() if rule.waives] == [v.RoutingPolicy.EXPERIMENTAL]


def test_the_reference_is_last_in_the_chain() -> None:
    assert list(v.BackendId)[-1] is v.BackendId.HF


def test_names_and_members_are_accepted() -> None:
    assert v.parse_policy("certified") is v.RoutingPolicy.CERTIFIED
    assert v.parse_policy(v.RoutingPolicy.SUPPORTED) is v.RoutingPolicy.SUPPORTED
    assert v.parse_backend("auto") is None
    assert v.parse_backend("fast_cpu") is v.BackendId.FAST_CPU
    assert v.parse_device("cuda") is v.Device.CUDA
    assert v.parse_delivery("jit") is v.GpuDelivery.JIT


def test_what_can_be_certified_is_a_backend_or_the_emulator() -> None:
    backends = {backend.value for backend in v.BackendId} - {v.BackendId.HF.value}
    assert {compared.value for compared in v.Compared} == backends | {"emulator"}


@pytest.mark.parametrize(
    ("parse", "value", "near"),
    [
        (v.parse_policy, "certifed", "certified"),
        (v.parse_policy, "", None),
        (v.parse_policy, None, None),
        (v.parse_policy, 3, None),
        (v.parse_backend, "fastcpu", "fast_cpu"),
        (v.parse_backend, "CPU?", None),
        (v.parse_device, "gpu0", None),
    ],
)
def test_other_names_are_refused_with_the_choices(parse, value, near) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(ConfigInvalid) as caught:
        parse(value)
    assert caught.value.details["expected"]
    assert all(name in caught.value.message for name in caught.value.details["expected"])
    assert near is None or f"did you mean {near!r}" in caught.value.message
