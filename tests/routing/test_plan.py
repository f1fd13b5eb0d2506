"""The plan: one table row for every gate and reason code, and laws over all combinations of small facts."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from toktier import errors
from toktier.evidence.admission import Admission, Finding
from toktier.routing.gates import REGISTRY_ABSENT, ProgramFacts, Request
from toktier.routing.plan import Plan, plan
from toktier.routing.probe import OpenedGpu, ProbeFacts, Problem, ThirdPartyFacts
from toktier.routing.vocabulary import (
    CERTIFIED_REFERENCE_VERSIONS,
    CERTIFYING,
    POLICIES,
    THIRD_PARTY,
    BackendId,
    Device,
    GpuDelivery,
    Reason,
    RoutingPolicy,
    Status,
)

GPU, CPU, HF = BackendId.GPU, BackendId.FAST_CPU, BackendId.HF
P, R = RoutingPolicy, Reason
# Reasons that no plan gives: they arise when a text is decoded or encoded.
AT_RUN_TIME = {
    R.DECODE_REFERENCE, R.SESSION_NO_SAFE_CUT, R.INPUT_BELOW_GPU_THRESHOLD, R.INPUT_NORMALIZED, R.GPU_MALFORMED,
    R.GPU_ADDED_OVERLAP, R.GPU_ADDED_FLAGS, R.GPU_GIANT_PIECE, R.BACKEND_FORKED, R.GPU_SESSION,
}  # fmt: skip

HERE = ProbeFacts(reference_version="0.23.3")
OLD = ProbeFacts(reference_version="0.22.1")
NONE = ProbeFacts(reference_version=None)
WITH_GPU = ProbeFacts("0.23.3", gpu_backend=True, gpu_count=1, gpu_delivery=GpuDelivery.JIT)
GPU_BUILT = ProbeFacts("0.23.3", gpu_backend=True, gpu_count=0)
NO_KERNELS = ProbeFacts("0.23.3", gpu_backend=True, gpu_count=2)
OPENED = OpenedGpu("sm_90", "9.0", "a device", "13.0", "ab" * 32, GpuDelivery.JIT, listed=True)


def with_gpu(**changes: object) -> ProbeFacts:
    """A device whose driver was asked."""
    return replace(WITH_GPU, gpu=replace(OPENED, **changes))  # type: ignore[arg-type]


def failed(gate: str, reason: Reason) -> ProbeFacts:
    return with_gpu(problem=Problem(gate, reason, "it went wrong"))


COMPILED = ProgramFacts("ab" * 32, fingerprint="cd" * 32)
UNSUITABLE = replace(COMPILED, gpu_unsuitable="its model falls back to bytes")
REFUSED = ProgramFacts("ab" * 32, unsupported=("model.type", "WordPiece", "model.type = WordPiece is beyond"))

UNKNOWN = ProgramFacts("ab" * 32, fingerprint="cd" * 32, unidentified="no table names these bytes")


CANNOT = Problem("file", R.BACKEND_REFUSED_FILE, "it cannot load the file")


def third_party(
    facts: ProbeFacts, backend: BackendId | None, version: str | None = "1.0", problem: Problem | None = None
) -> ProbeFacts:
    """An engine of others that was named, installed or not, before or after it saw the file."""
    if backend not in THIRD_PARTY:
        return facts
    assert backend is not None
    return replace(facts, third_party=ThirdPartyFacts(backend, version, problem))


def known(statuses: dict[BackendId, Status], reason: Reason | None = None) -> Admission:
    """What a registry with rows says."""
    return Admission("sha256:00", {backend: Finding(status, "it says", reason) for backend, status in statuses.items()})


ABSENT = Admission()
CERTIFIED = known({GPU: Status.CERTIFIED, CPU: Status.CERTIFIED})
UNJUDGED = known({})
STALE = known({CPU: Status.UNTESTED}, R.ENGINE_BINDING_MISMATCH)
BROKEN = Admission("invalid", {CPU: Finding(Status.UNTESTED, "the registry is damaged", R.REGISTRY_INVALID)})
LOCAL = known({CPU: Status.LOCALLY_CERTIFIED})
UNLISTED = Admission(
    "sha256:00",
    {
        CPU: Finding(Status.CERTIFIED, "it says"),
        GPU: Finding(Status.EXPERIMENTAL, "other kernels", R.KERNEL_DIGEST_MISMATCH),
    },
)
ELSEWHERE = Admission(
    "sha256:00",
    {
        CPU: Finding(Status.CERTIFIED, "it says"),
        GPU: Finding(Status.COMPILED_UNJUDGED, "no evidence there", R.SM_UNCERTIFIED),
    },
)
GPU_ONLY = known({GPU: Status.CERTIFIED})
LOCAL_ONLY = Admission(None, {CPU: Finding(Status.LOCALLY_CERTIFIED, "it says")})


def request(policy: P = P.CERTIFIED, **fields: object) -> Request:
    return replace(Request(policy), **fields)  # type: ignore[arg-type]


# facts, program, admission, request -> who serves, and the reason codes of those above it
SERVED = [
    # program and policy
    (HERE, COMPILED, ABSENT, request(), CPU, {GPU: R.BACKEND_UNAVAILABLE}),
    (HERE, COMPILED, ABSENT, request(P.SUPPORTED), CPU, {GPU: R.BACKEND_UNAVAILABLE}),
    (HERE, COMPILED, ABSENT, request(P.REQUIRE_ACCELERATED), CPU, {GPU: R.BACKEND_UNAVAILABLE}),
    (HERE, COMPILED, ABSENT, request(P.EXPERIMENTAL), CPU, {GPU: R.BACKEND_UNAVAILABLE}),
    (HERE, COMPILED, ABSENT, request(P.REFERENCE), HF, {GPU: R.POLICY_REFERENCE, CPU: R.POLICY_REFERENCE}),
    (HERE, REFUSED, ABSENT, request(), HF, {GPU: R.BACKEND_UNAVAILABLE, CPU: R.PROGRAM_UNSUPPORTED}),
    (HERE, REFUSED, ABSENT, request(P.REFERENCE), HF, {GPU: R.POLICY_REFERENCE, CPU: R.POLICY_REFERENCE}),
    (HERE, REFUSED, ABSENT, request(P.EXPERIMENTAL), HF, {GPU: R.BACKEND_UNAVAILABLE, CPU: R.PROGRAM_UNSUPPORTED}),
    # reference version
    (OLD, COMPILED, ABSENT, request(), HF, {GPU: R.BACKEND_UNAVAILABLE, CPU: R.ORACLE_MISMATCH}),
    (OLD, COMPILED, ABSENT, request(P.SUPPORTED), HF, {GPU: R.BACKEND_UNAVAILABLE, CPU: R.ORACLE_MISMATCH}),
    (OLD, COMPILED, ABSENT, request(P.EXPERIMENTAL), CPU, {GPU: R.BACKEND_UNAVAILABLE}),
    # named backend
    (HERE, COMPILED, ABSENT, request(backend=HF), HF, {GPU: R.BACKEND_NOT_SELECTED, CPU: R.BACKEND_NOT_SELECTED}),
    (HERE, COMPILED, ABSENT, request(backend=HF, fallback=False), HF, {GPU: R.BACKEND_NOT_SELECTED}),
    (HERE, COMPILED, ABSENT, request(backend=CPU), CPU, {GPU: R.BACKEND_NOT_SELECTED}),
    (HERE, REFUSED, ABSENT, request(backend=CPU), HF, {GPU: R.BACKEND_NOT_SELECTED, CPU: R.PROGRAM_UNSUPPORTED}),
    (HERE, COMPILED, ABSENT, request(backend=GPU), CPU, {GPU: R.BACKEND_UNAVAILABLE}),
    (HERE, COMPILED, ABSENT, request(P.REFERENCE, backend=CPU), HF, {CPU: R.POLICY_REFERENCE}),
    # device
    (WITH_GPU, COMPILED, CERTIFIED, request(), GPU, {}),
    (WITH_GPU, COMPILED, CERTIFIED, request(device=Device.CUDA), GPU, {}),
    (WITH_GPU, COMPILED, CERTIFIED, request(device=Device.CPU), CPU, {GPU: R.GPU_DISABLED}),
    (WITH_GPU, COMPILED, CERTIFIED, request(gpu_disabled=True), CPU, {GPU: R.GPU_DISABLED}),
    (GPU_BUILT, COMPILED, CERTIFIED, request(), CPU, {GPU: R.NO_GPU_DETECTED}),
    (GPU_BUILT, COMPILED, CERTIFIED, request(backend=GPU), CPU, {GPU: R.NO_GPU_DETECTED}),
    (NO_KERNELS, COMPILED, CERTIFIED, request(), CPU, {GPU: R.BACKEND_UNAVAILABLE}),
    (WITH_GPU, UNSUITABLE, CERTIFIED, request(), CPU, {GPU: R.GPU_PROGRAM_UNSUITABLE}),
    (WITH_GPU, COMPILED, GPU_ONLY, request(), HF, {GPU: R.UNCERTIFIED_ARTIFACT, CPU: R.UNCERTIFIED_ARTIFACT}),
    # once the driver was asked
    (with_gpu(), COMPILED, CERTIFIED, request(), GPU, {}),
    (with_gpu(), COMPILED, ELSEWHERE, request(), CPU, {GPU: R.SM_UNCERTIFIED}),
    (with_gpu(self_tested=True), COMPILED, ELSEWHERE, request(P.SUPPORTED), GPU, {}),
    (with_gpu(listed=False), COMPILED, UNLISTED, request(P.SUPPORTED), CPU, {GPU: R.KERNEL_DIGEST_MISMATCH}),
    (with_gpu(listed=False), COMPILED, UNLISTED, request(P.EXPERIMENTAL), GPU, {}),
    (failed("device", R.DRIVER_TOO_OLD), COMPILED, CERTIFIED, request(), CPU, {GPU: R.DRIVER_TOO_OLD}),
    (failed("device", R.NO_GPU_DETECTED), COMPILED, CERTIFIED, request(), CPU, {GPU: R.NO_GPU_DETECTED}),
    (failed("kernels", R.KERNEL_BUILD_FAILED), COMPILED, CERTIFIED, request(), CPU, {GPU: R.KERNEL_BUILD_FAILED}),
    (failed("kernels", R.KERNEL_DIGEST_MISMATCH), COMPILED, CERTIFIED, request(), CPU, {GPU: R.KERNEL_DIGEST_MISMATCH}),
    (
        failed("self_test", R.GPU_SELF_TEST_FAILED),
        COMPILED,
        CERTIFIED,
        request(P.EXPERIMENTAL),
        CPU,
        {GPU: R.GPU_SELF_TEST_FAILED},
    ),
    (failed("execution", R.EXEC_FAULT), COMPILED, CERTIFIED, request(P.EXPERIMENTAL), CPU, {GPU: R.EXEC_FAULT}),
    (failed("execution", R.GPU_FORKED), COMPILED, CERTIFIED, request(), CPU, {GPU: R.GPU_FORKED}),
    # registry
    (WITH_GPU, COMPILED, ABSENT, request(), CPU, {GPU: R.UNCERTIFIED_ARTIFACT}),
    (WITH_GPU, COMPILED, ABSENT, request(P.SUPPORTED), GPU, {}),
    (HERE, COMPILED, UNJUDGED, request(), HF, {CPU: R.UNCERTIFIED_ARTIFACT}),
    (HERE, COMPILED, UNJUDGED, request(P.SUPPORTED), CPU, {}),
    (HERE, COMPILED, UNJUDGED, request(P.EXPERIMENTAL), CPU, {}),
    (HERE, COMPILED, LOCAL, request(), CPU, {}),
    (HERE, COMPILED, LOCAL, request(P.REQUIRE_ACCELERATED), CPU, {}),
    (HERE, COMPILED, LOCAL_ONLY, request(), CPU, {}),
    (HERE, COMPILED, known({CPU: Status.UNSUPPORTED}), request(P.EXPERIMENTAL), HF, {CPU: R.UNCERTIFIED_ARTIFACT}),
    (HERE, COMPILED, known({CPU: Status.EXPERIMENTAL}), request(P.SUPPORTED), HF, {CPU: R.UNCERTIFIED_ARTIFACT}),
    (HERE, COMPILED, known({CPU: Status.EXPERIMENTAL}), request(P.EXPERIMENTAL), CPU, {}),
    (HERE, COMPILED, STALE, request(), HF, {CPU: R.ENGINE_BINDING_MISMATCH}),
    (HERE, COMPILED, STALE, request(P.SUPPORTED), CPU, {}),
    (HERE, COMPILED, STALE, request(P.EXPERIMENTAL), CPU, {}),
    (HERE, COMPILED, BROKEN, request(), HF, {CPU: R.REGISTRY_INVALID}),
    (HERE, COMPILED, BROKEN, request(P.SUPPORTED), CPU, {}),
    # bytes that came by a repository's name
    (HERE, UNKNOWN, ABSENT, request(), HF, {CPU: R.UNCERTIFIED_ARTIFACT}),
    (HERE, UNKNOWN, ABSENT, request(P.SUPPORTED), CPU, {}),
    (HERE, UNKNOWN, CERTIFIED, request(), CPU, {}),  # by its fingerprint
    (HERE, UNKNOWN, STALE, request(), HF, {CPU: R.UNCERTIFIED_ARTIFACT}),
]


@pytest.mark.parametrize(("facts", "program", "admission", "asked", "serves", "reasons"), SERVED)
def test_served(
    facts: ProbeFacts,
    program: ProgramFacts,
    admission: Admission,
    asked: Request,
    serves: BackendId,
    reasons: dict[BackendId, Reason],
) -> None:
    decided = plan(facts, asked, program, admission)
    assert decided.refusal is None
    assert decided.serves is serves
    assert decided.chain[0] is serves
    got = {gate.backend: gate.reason for gate in decided.closed}
    assert reasons.items() <= got.items()
    assert serves not in got


REFUSALS = [
    (HERE, REFUSED, ABSENT, request(fallback=False), errors.ProgramUnsupported),
    (HERE, REFUSED, ABSENT, request(P.REQUIRE_ACCELERATED), errors.ProgramUnsupported),
    (HERE, REFUSED, ABSENT, request(backend=CPU, fallback=False), errors.ProgramUnsupported),
    (OLD, COMPILED, ABSENT, request(fallback=False), errors.OracleVersionUnsupported),
    (OLD, COMPILED, ABSENT, request(P.REQUIRE_ACCELERATED), errors.OracleVersionUnsupported),
    (HERE, COMPILED, UNJUDGED, request(fallback=False), errors.UncertifiedTokenizer),
    (HERE, COMPILED, UNJUDGED, request(P.REQUIRE_ACCELERATED), errors.UncertifiedTokenizer),
    (HERE, COMPILED, STALE, request(P.REQUIRE_ACCELERATED), errors.UncertifiedTokenizer),
    (HERE, COMPILED, BROKEN, request(P.REQUIRE_ACCELERATED), errors.UncertifiedTokenizer),
    (HERE, UNKNOWN, ABSENT, request(P.REQUIRE_ACCELERATED), errors.UncertifiedTokenizer),
    (HERE, COMPILED, ABSENT, request(backend=GPU, fallback=False), errors.BackendUnavailable),
    (HERE, COMPILED, ABSENT, request(device=Device.CUDA, fallback=False), errors.BackendUnavailable),
    (GPU_BUILT, COMPILED, ABSENT, request(backend=GPU, fallback=False), errors.BackendUnavailable),
    (NO_KERNELS, COMPILED, CERTIFIED, request(backend=GPU, fallback=False), errors.BackendUnavailable),
    (WITH_GPU, UNSUITABLE, CERTIFIED, request(device=Device.CUDA, fallback=False), errors.BackendUnavailable),
    (WITH_GPU, COMPILED, ABSENT, request(device=Device.CUDA, fallback=False), errors.UncertifiedTokenizer),
    (
        failed("device", R.DRIVER_TOO_OLD),
        COMPILED,
        CERTIFIED,
        request(backend=GPU, fallback=False),
        errors.CudaDriverTooOld,
    ),
    (with_gpu(), COMPILED, ELSEWHERE, request(backend=GPU, fallback=False), errors.UncertifiedTokenizer),
    (NONE, COMPILED, ABSENT, request(), errors.OracleVersionUnsupported),
    (NONE, COMPILED, ABSENT, request(backend=HF), errors.BackendUnavailable),
    (NONE, COMPILED, ABSENT, request(P.REFERENCE), errors.BackendUnavailable),
    (HERE, COMPILED, ABSENT, request(P.REQUIRE_ACCELERATED, backend=HF), errors.ConfigInvalid),
    (HERE, COMPILED, ABSENT, request(P.REFERENCE, backend=CPU, fallback=False), errors.ConfigInvalid),
    (WITH_GPU, COMPILED, CERTIFIED, request(backend=GPU, device=Device.CPU, fallback=False), errors.ConfigInvalid),
]


@pytest.mark.parametrize(("facts", "program", "admission", "asked", "error"), REFUSALS)
def test_refused(
    facts: ProbeFacts, program: ProgramFacts, admission: Admission, asked: Request, error: type[errors.ToktierError]
) -> None:
    decided = plan(facts, asked, program, admission)
    assert decided.serves is None
    assert decided.chain == ()
    assert type(decided.refusal) is error
    assert decided.refusal.remedy
    if error is errors.ProgramUnsupported:
        assert decided.refusal.details == {"path": "model.type", "component": "WordPiece"}


@pytest.mark.parametrize("policy", [P.CERTIFIED, P.REQUIRE_ACCELERATED])
@pytest.mark.parametrize(
    ("facts", "program", "admission"),
    [(HERE, COMPILED, ABSENT), (GPU_BUILT, COMPILED, ABSENT), (WITH_GPU, COMPILED, ABSENT), (HERE, COMPILED, UNJUDGED)],
)
@pytest.mark.parametrize("asked", [{"backend": GPU}, {"device": Device.CUDA}])
def test_the_remedy_of_a_gpu_request_names_who_serves_once_fallback_is_allowed(
    policy: P, facts: ProbeFacts, program: ProgramFacts, admission: Admission, asked: dict[str, object]
) -> None:
    refusal = plan(facts, request(policy, fallback=False, **asked), program, admission).refusal
    assert refusal is not None
    assert refusal.remedy is not None
    below = plan(facts, request(policy, **asked), program, admission).serves
    if below is None:
        assert refusal.remedy.startswith("allow the reference to serve")
    else:
        assert "--no-tokenizer-fallback" in refusal.remedy
        assert refusal.remedy.endswith(f": {below.value} then serves")


def all_plans() -> list[Plan]:
    problems = [
        failed("device", R.DRIVER_TOO_OLD), failed("kernels", R.KERNEL_BUILD_FAILED),
        failed("self_test", R.GPU_SELF_TEST_FAILED), failed("execution", R.EXEC_FAULT),
        failed("execution", R.GPU_FORKED),
    ]  # fmt: skip
    known_of_cpu = [ABSENT, CERTIFIED, UNJUDGED, STALE, BROKEN, LOCAL]
    combined = [
        ([HERE, OLD, NONE, WITH_GPU, GPU_BUILT], [COMPILED, REFUSED, UNKNOWN], known_of_cpu),
        ([NO_KERNELS, WITH_GPU, with_gpu()], [COMPILED, UNSUITABLE], [CERTIFIED, UNLISTED, ELSEWHERE, GPU_ONLY]),
        (problems, [COMPILED], [CERTIFIED, UNLISTED]),
    ]
    asked = itertools.product(RoutingPolicy, [None, GPU, CPU, HF], Device, [True, False], [True, False])
    requests = [Request(*each) for each in asked]
    own = [
        plan(seen, each, program, admission)
        for facts, programs, admissions in combined
        for seen, program, admission, each in itertools.product(facts, programs, admissions, requests)
    ]
    others = itertools.product(
        [HERE, NONE, WITH_GPU], [None, "1.0"], [None, CANNOT], [COMPILED, REFUSED], [ABSENT, CERTIFIED], RoutingPolicy,
        [*THIRD_PARTY, None, CPU], [True, False],
    )  # fmt: skip
    return own + [
        plan(third_party(seen, backend, version, problem), request(policy, backend=backend, fallback=fallback), *about)
        for seen, version, problem, *about, policy, backend, fallback in others
    ]


def test_laws_over_all_small_facts() -> None:
    plans = all_plans()
    assert len(plans) > 5000
    seen: set[Reason] = set()
    for p in plans:
        seen |= {gate.reason for gate in p.gates if gate.reason is not None}
        # exactly one of: something serves, or it is refused with a remedy
        assert (p.serves is None) == (p.refusal is not None)
        if p.refusal is not None:
            assert p.refusal.remedy
            assert p.status is Status.UNSUPPORTED
            continue
        assert p.serves is not None
        # the serving backend has no closed gate, and a waived one only under a policy that waives it
        own = [gate for gate in p.gates if gate.backend is p.serves]
        assert own
        assert all(gate.is_open for gate in own)
        assert {g.name for g in p.waivers} <= POLICIES[p.request.policy].waives
        # the chain only goes down, and what serves is never above what was asked for
        order = list(BackendId)
        assert list(p.chain) == sorted(p.chain, key=order.index)
        if p.request.backend is not None:
            assert order.index(p.serves) >= order.index(p.request.backend)
        # every backend above the serving one has a reason; an engine of others where it was named, and no gates else
        judged = {b for b in order if b not in THIRD_PARTY or b is p.request.backend}
        assert {gate.backend for gate in p.gates} == judged
        above = {b for b in judged if order.index(b) < order.index(p.serves)}
        assert above <= {gate.backend for gate in p.closed}
        # a GPU leans on the CPU engine, and serves no kernels of which nothing is known
        if p.serves is GPU:
            assert all(g.is_open for g in p.gates if g.backend is CPU and g.name != "selection")
            assert p.facts.gpu_count
            assert p.facts.gpu_delivery is not None
            assert p.facts.gpu is None or p.facts.gpu.problem is None
            if p.admission is UNLISTED:
                assert p.request.policy is P.EXPERIMENTAL
                assert R.KERNEL_DIGEST_MISMATCH in {gate.reason for gate in p.waivers}
            if p.admission is ELSEWHERE:
                assert p.request.policy in (P.SUPPORTED, P.EXPERIMENTAL)
        # an engine of others: named, under policy experimental, installed, as a waiver, and without the guarantee
        if p.serves in THIRD_PARTY:
            assert p.request.backend is p.serves
            assert p.request.policy is P.EXPERIMENTAL
            assert p.facts.third_party == ThirdPartyFacts(p.serves, "1.0")
            assert [gate.name for gate in p.waivers] == ["registry"]
            assert p.status is Status.EXPERIMENTAL
            assert not p.exact_id_guarantee
            continue
        # where one was named and does not serve, the reference does, and no accelerated backend
        if p.request.backend in THIRD_PARTY:
            assert p.serves is HF
        # nothing accelerated without a program, and without a certified reference only as a reported waiver
        if p.serves is not HF:
            assert p.program.unsupported is None
            assert p.facts.reference_version in CERTIFIED_REFERENCE_VERSIONS or p.waivers
            # under the default policy only what evidence stands behind, or the ground of an empty registry
            if p.request.policy in (P.CERTIFIED, P.REQUIRE_ACCELERATED):
                assert p.status in CERTIFYING or p.admission.registry is None
        # the reference in place of another backend only where that is allowed
        if p.involuntary is not None:
            assert p.request.fallback
            assert POLICIES[p.request.policy].reference_may_serve
            assert p.involuntary.reason is not None
    assert seen == set(Reason) - AT_RUN_TIME, "a reason code of the plan that no fact produces"


@pytest.mark.parametrize("backend", THIRD_PARTY)
def test_what_is_said_where_an_engine_of_others_does_not_serve(backend: BackendId) -> None:
    named = request(backend=backend)
    closed = plan(third_party(HERE, backend), named, COMPILED)
    assert closed.involuntary is not None
    assert (closed.involuntary.backend, closed.involuntary.reason) == (backend, R.UNCERTIFIED_ARTIFACT)
    assert closed.mend == 'policy="experimental", or --policy experimental'
    absent = plan(third_party(HERE, backend, None), replace(named, policy=P.EXPERIMENTAL), COMPILED)
    assert absent.involuntary is not None
    assert absent.involuntary.reason is R.BACKEND_UNAVAILABLE
    assert absent.mend == f"pip install {backend.value}"
    serves = plan(third_party(HERE, backend), replace(named, policy=P.EXPERIMENTAL), COMPILED)
    assert serves.serves is backend
    refused = serves.without(CANNOT)
    assert (refused.serves, refused.mend) == (HF, None)
    assert refused.involuntary is not None
    assert refused.involuntary.summary == CANNOT.text


@pytest.mark.parametrize("backend", THIRD_PARTY)
@pytest.mark.parametrize(
    ("policy", "fallback", "version", "problem", "error"),
    [
        (P.CERTIFIED, False, "1.0", None, errors.ConfigInvalid),
        (P.SUPPORTED, False, "1.0", None, errors.ConfigInvalid),
        (P.REQUIRE_ACCELERATED, True, "1.0", None, errors.ConfigInvalid),
        (P.REFERENCE, False, "1.0", None, errors.ConfigInvalid),
        (P.EXPERIMENTAL, False, None, None, errors.BackendUnavailable),
        (P.EXPERIMENTAL, False, "1.0", CANNOT, errors.BackendUnavailable),
    ],
)
def test_an_engine_of_others_or_an_error(
    backend: BackendId, policy: P, fallback: bool, version: str | None, problem: Problem | None, error: type[Exception]
) -> None:
    asked = request(policy, backend=backend, fallback=fallback)
    refusal = plan(third_party(HERE, backend, version, problem), asked, COMPILED, CERTIFIED).refusal
    assert type(refusal) is error
    assert backend.value in refusal.message
    assert refusal.remedy


def test_it_is_pure() -> None:
    for asked in (request(), request(P.REFERENCE), request(fallback=False)):
        assert plan(HERE, asked, COMPILED, CERTIFIED) == plan(HERE, asked, COMPILED, CERTIFIED)


def test_the_registry_gate_states_its_ground_while_no_registry_is_shipped() -> None:
    gate = next(g for g in plan(HERE, request(), COMPILED).gates if g.backend is CPU and g.name == "registry")
    assert gate.is_open
    assert gate.summary == REGISTRY_ABSENT
    with_registry = plan(HERE, request(), COMPILED, CERTIFIED)
    gate = next(g for g in with_registry.gates if g.backend is CPU and g.name == "registry")
    assert gate.summary == "status certified, policy certified: it says"
    assert with_registry.status is Status.CERTIFIED


def test_experimental_lists_what_it_waives() -> None:
    waived = plan(OLD, request(P.EXPERIMENTAL), COMPILED)
    assert [gate.reason for gate in waived.waivers] == [Reason.ORACLE_MISMATCH]
    assert plan(HERE, request(P.EXPERIMENTAL), COMPILED).waivers == ()
    assert plan(HERE, request(P.EXPERIMENTAL), COMPILED, CERTIFIED).waivers == ()
    for admission, reason in ((UNJUDGED, R.UNCERTIFIED_ARTIFACT), (STALE, R.ENGINE_BINDING_MISMATCH)):
        decided = plan(HERE, request(P.EXPERIMENTAL), COMPILED, admission)
        assert [(gate.name, gate.reason) for gate in decided.waivers] == [("registry", reason)]
        assert plan(HERE, request(P.SUPPORTED), COMPILED, admission).waivers == ()


@pytest.mark.parametrize(
    ("admission", "program", "mend"),
    [
        (UNJUDGED, COMPILED, "toktier certify FILE"),
        (STALE, replace(COMPILED, named="qwen3_8b"), "toktier certify qwen3_8b"),
        (UNJUDGED, replace(COMPILED, named="my tokenizer.json"), "toktier certify 'my tokenizer.json'"),
        (BROKEN, COMPILED, "install toktier again"),
        (UNJUDGED, REFUSED, None),
        (CERTIFIED, COMPILED, None),
    ],
)
def test_what_mends_it_is_a_command_to_copy(admission: Admission, program: ProgramFacts, mend: str | None) -> None:
    assert plan(HERE, request(), program, admission).mend == mend
    refusal = plan(HERE, request(P.REQUIRE_ACCELERATED), program, admission).refusal
    if mend is not None:
        assert refusal is not None
        assert refusal.remedy is not None
        assert refusal.remedy.startswith(mend)


def test_involuntary_reference_is_told_by_the_backend_that_would_have_served() -> None:
    gate = plan(HERE, request(), REFUSED).involuntary
    assert gate is not None
    assert gate.reason is Reason.PROGRAM_UNSUPPORTED
    assert plan(HERE, request(P.REFERENCE), REFUSED).involuntary is None
    assert plan(HERE, request(backend=HF), REFUSED).involuntary is None


def test_the_plan_made_again_is_the_plan_with_what_was_found() -> None:
    first = plan(WITH_GPU, request(P.SUPPORTED), COMPILED, UNJUDGED)
    assert first.chain == (GPU, CPU, HF)
    again = first.again(OPENED, UNLISTED)
    assert again == plan(with_gpu(), request(P.SUPPORTED), COMPILED, UNLISTED)
    assert again.serves is CPU
    assert again.chain == (CPU, HF)


def test_a_closed_gate_of_the_gpu_says_what_a_person_may_do() -> None:
    for facts, admission, word in (
        (NO_KERNELS, CERTIFIED, "nvidia-cuda-nvrtc"),
        (GPU_BUILT, CERTIFIED, "CUDA_VISIBLE_DEVICES"),
        (failed("device", R.DRIVER_TOO_OLD), CERTIFIED, "newer driver"),
        (failed("kernels", R.KERNEL_BUILD_FAILED), CERTIFIED, "toktier gpu compile"),
        (with_gpu(), ELSEWHERE, "toktier certify FILE --backend gpu"),
    ):
        refusal = plan(facts, request(backend=GPU, fallback=False), COMPILED, admission).refusal
        assert refusal is not None
        assert refusal.remedy is not None
        assert word in refusal.remedy
        assert "fast_cpu then serves" in refusal.remedy or "allow the reference" in refusal.remedy


def test_experimental_lists_waivers_of_the_cpu_engine_that_a_gpu_leans_on() -> None:
    decided = plan(with_gpu(self_tested=True), request(P.EXPERIMENTAL), COMPILED, UNJUDGED)
    assert decided.serves is GPU
    assert [(gate.backend, gate.name) for gate in decided.waivers] == [(GPU, "registry"), (CPU, "registry")]
