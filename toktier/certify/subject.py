"""What is certified: one tokenizer.json, its compiled tables, a backend forced to serve it, and the reference.

Made once in every process that runs blocks. The backend is asked for by name and may hand a text to the reference only
visibly: every encoding carries who made it, and `Tally` counts. A device is compared through its own engine (`device`).
An engine of others is a third-party backend that the caller named: it follows none of the tables, knows no offsets, and
has whatever `THIRD_PARTY` says. Not here: what is compared (`tally`, `suites/`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import toktier
from toktier.certify.corpora import Corpus, read_corpora
from toktier.config import Config, resolve_settings
from toktier.errors import ProgramCorrupt, UsageError
from toktier.labels import shown_path, typed
from toktier.program.boundary import BoundaryTables, compile_boundaries
from toktier.program.compile import compile_spec
from toktier.program.file import ProgramFile, read_program
from toktier.program.meta import read_meta
from toktier.program.token_automaton import TokenAutomaton, build_token_automaton
from toktier.program.tokenizer_json import TokenizerSpec, read_tokenizer
from toktier.routing.vocabulary import THIRD_PARTY, BackendId, Compared, ThirdPartyRule

if TYPE_CHECKING:
    import tokenizers

    from toktier import Encoding, Tokenizer
    from toktier._native import EncoderBase, Program, SessionBase
    from toktier.certify.device import Chosen, DeviceTokenizer
    from toktier.evidence.kernels import Kernels


class Answered(NamedTuple):
    """Texts and rows of ids by the backend under test, and both by another: the reference, or of kernels the CPU
    engine."""

    texts: int
    decodings: int
    by_reference: int

    def only_the_backend(self, since: Answered, texts: int = 0, decodings: int = 0) -> bool:
        """Whether at least so many of the backend, and nothing of the reference, came since then."""
        backend = self.texts - since.texts >= texts and self.decodings - since.decodings >= decodings
        return backend and self.by_reference == since.by_reference


class Subject:
    """`path`: the tokenizer.json; `backend`: the one under test; `home`: where programs and generated suites are kept,
    None: the user's. `corpora`: paths of documents to compare too. `driver`: the library that the emulator is."""

    def __init__(
        self,
        path: Path,
        backend: Compared = Compared.FAST_CPU,
        home: Path | None = None,
        corpora: tuple[Path, ...] = (),
        driver: Path | None = None,
    ) -> None:
        self.path, self.backend, self.home, self.corpora, self.driver = path, backend, home, corpora, driver
        if (backend is Compared.EMULATOR) != (driver is not None):
            raise UsageError(
                "the emulator is a driver library, and nothing else is certified with one",
                details={"backend": backend.value},
                remedy="--backend emulator --driver LIB",
            )
        self.data = path.read_bytes()
        self.sha256 = hashlib.sha256(self.data).hexdigest()

    @cached_property
    def spec(self) -> TokenizerSpec:
        return read_tokenizer(self.data, str(self.path), sha256=self.sha256)

    @cached_property
    def boundary(self) -> BoundaryTables | None:
        """Tables of the pre-tokenizer; None where there is none."""
        stages = self.spec.pre_tokenizer.stages
        return compile_boundaries(stages) if stages else None

    @cached_property
    def automaton(self) -> TokenAutomaton | None:
        return None if self.boundary is None else build_token_automaton(self.boundary)

    @cached_property
    def program_file(self) -> ProgramFile:
        """The program, compiled here and now: what the tables say, whatever a cache holds."""
        return read_program(compile_spec(self.spec))

    @cached_property
    def meta(self) -> dict[str, Any]:
        return read_meta(self.program_file.section("META"))

    @cached_property
    def fingerprint(self) -> str:
        return self.program_file.fingerprint

    @property
    def on_device(self) -> bool:
        """What is compared are kernels."""
        return self.backend in (Compared.GPU, Compared.EMULATOR)

    @property
    def third_party(self) -> ThirdPartyRule | None:
        """What the engine of others under test can do; None: it is one of this package."""
        return None if self.backend is Compared.EMULATOR else THIRD_PARTY.get(BackendId(self.backend.value))

    @property
    def gives_offsets(self) -> bool:
        return self.third_party is None

    @property
    def takes_plain(self) -> bool:
        """Whether special tokens can be ordinary text."""
        return self.third_party is None or self.third_party.plain

    @property
    def served_as(self) -> str:
        """What results of the backend under test are called."""
        return BackendId.GPU.value if self.on_device else self.backend.value

    @cached_property
    def chosen(self) -> Chosen:
        """The device and its kernels. Raises BackendUnavailable."""
        from toktier.certify.device import choose

        return choose(resolve_settings(Config(home=self.home)), driver=self.driver)

    @cached_property
    def kernels(self) -> Kernels | None:
        """What evidence binds beside the engine; None: nothing."""
        if not self.on_device:
            return None
        from toktier.certify.device import kernels_of

        return kernels_of(self.chosen, self.native)

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """The backend under test. Its admission is what is to be decided, so the policy is the one that needs none.
        Raises ProgramCorrupt unless it follows the tables of `program_file`, which the suites read."""
        if self.on_device:
            from toktier.certify.device import DeviceTokenizer

            # It has the calls that suites make.
            return cast("Tokenizer", DeviceTokenizer(self.native, self.chosen, self.backend, self.driver))
        tokenizer = toktier.from_file(
            self.path, policy="experimental", tokenizer=self.backend.value, config=Config(home=self.home)
        )
        program = tokenizer.explain(summary=True)["program"]
        if program and program["path"] and Path(program["path"]).read_bytes() != self.program_file.buffer:
            raise ProgramCorrupt(
                f"{shown_path(program['path'])} is sound, and not what the compiler makes of {shown_path(self.path)}",
                details={"path": program["path"]},
                remedy=f"rm {typed(program['path'])}; it is made again",
            )
        return tokenizer

    @cached_property
    def native(self) -> Program:
        """The engine on the program of `tokenizer`: the same tables as `program_file`."""
        from toktier._native import Program

        return Program(self.program_file.buffer)

    @cached_property
    def native_levels(self) -> tuple[Program, ...]:
        """The same at every dispatch level of this CPU, slowest first: none may be believed for another's sake."""
        from toktier._native import Program
        from toktier.program.engine_identity import build_facts

        return tuple(Program(self.program_file.buffer, level) for level in build_facts()["dispatch_levels"])

    @cached_property
    def other_levels(self) -> tuple[tuple[str, EncoderBase], ...]:
        """The engine at the levels that the tokenizer under test does not run at, by name; none for another backend."""
        from toktier._native import EncoderBase

        if self.on_device or self.third_party is not None:
            return ()
        return tuple((program.level, EncoderBase(program)) for program in self.native_levels[:-1])

    @cached_property
    def reference(self) -> tokenizers.Tokenizer:
        from tokenizers import Tokenizer as Reference

        return Reference.from_buffer(self.data)

    def expected(self, text: str, add_special_tokens: bool = False, plain: bool = False) -> tokenizers.Encoding:
        """The reference's encoding. `plain`: special added tokens are ordinary text. For one thread at a time: it sets
        and resets a switch of the reference, which costs nothing beside loading a second one."""
        reference = self.reference
        if not plain:
            return reference.encode(text, add_special_tokens=add_special_tokens)
        reference.encode_special_tokens = True
        try:
            return reference.encode(text, add_special_tokens=add_special_tokens)
        finally:
            reference.encode_special_tokens = False

    @cached_property
    def read_corpora(self) -> tuple[Corpus, ...]:
        """The corpora, each read once. Raises EvidenceIncomplete where one is missing or unreadable."""
        return read_corpora(self.corpora)

    def encode(self, text: str, add_special_tokens: bool = False, plain: bool = False) -> Encoding:
        """One encoding, with offsets where the backend under test has them; `.backend` says who made it."""
        return self.tokenizer.encode(text, add_special_tokens, plain=plain, offsets=True)

    def encode_ids(self, text: str, add_special_tokens: bool = False, plain: bool = False) -> Encoding:
        """One encoding by a call that asks for no offsets, which the engine answers by a path of its own."""
        return self.tokenizer.encode(text, add_special_tokens, plain=plain)

    @property
    def session(self) -> Callable[[], SessionBase] | None:
        """Makes a session of the backend under test; None where the reference would serve it."""
        from toktier._native import EncoderBase, SessionBase

        tokenizer = self.tokenizer
        if not isinstance(tokenizer, EncoderBase) or tokenizer.program is None:
            return None
        return lambda: SessionBase(tokenizer)

    def answered(self) -> Answered:
        """Who answered calls that carry no name of their own, since the tokenizer was loaded: about 30 µs."""
        if self.on_device:
            texts, redone = cast("DeviceTokenizer", self.tokenizer).answered()
            return Answered(texts, 0, redone)
        counters = self.tokenizer.explain()["counters"]
        calls, decodings = counters["calls"], counters["decode_calls"]
        own, reference = self.backend.value, BackendId.HF.value
        return Answered(calls.get(own, 0), decodings.get(own, 0), calls.get(reference, 0) + decodings.get(reference, 0))
