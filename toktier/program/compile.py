"""tokenizer.json → program file, in one call. The order of the work; each part of it lives in its own module.

Deterministic: the same bytes give the same file under the same compiler. Nothing is written or cached: `store.py`.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from functools import cache

from toktier import _native
from toktier.canonical import canonical_json
from toktier.program import unicode
from toktier.program.boundary import BoundaryTables, compile_boundaries
from toktier.program.bpe_sections import added_token_sections, bpe_sections, byte_strings
from toktier.program.byte_trie import little_endian
from toktier.program.code_point_sets import marks
from toktier.program.code_point_trie import build_trie
from toktier.program.compiler_identity import compiler_digest
from toktier.program.cut_guards import cut_guard_sections
from toktier.program.cuts import Cuts, static_cuts
from toktier.program.decoder import Decoder, decoder_sections
from toktier.program.file import write_program
from toktier.program.fingerprint import fingerprint
from toktier.program.layout import CONF_FIELDS, Conf, DecoderOp, Flag
from toktier.program.length_limits import length_conf
from toktier.program.meta import build_meta
from toktier.program.normalizer import UNICODE_FORMS, normalizer_sections
from toktier.program.post_processor import PostProcessor
from toktier.program.token_automaton import TokenAutomaton, build_token_automaton
from toktier.program.tokenizer_json import TokenizerSpec, read_tokenizer


def compile_tokenizer(data: bytes, name: str = "tokenizer.json", *, sha256: str | None = None) -> bytes:
    """The program file of a tokenizer.json; `sha256` (hex) is its digest where it is known.

    Raises ArtifactDamaged, NotATokenizer, UnsupportedConfig or ProgramUnsupported: see `read_tokenizer`.
    """
    return compile_spec(read_tokenizer(data, name, sha256=sha256))


def compile_spec(spec: TokenizerSpec) -> bytes:
    """The program file of a tokenizer that was read."""
    boundary: BoundaryTables | None = None
    automaton: TokenAutomaton | None = None
    cuts: Cuts | None = None
    if spec.pre_tokenizer.stages:
        boundary = compile_boundaries(spec.pre_tokenizer.stages)
        automaton = build_token_automaton(boundary)
        cuts = static_cuts(boundary)
    bpe = bpe_sections(
        spec.model,
        spec.added_tokens,
        byte_level=spec.pre_tokenizer.byte_level,
        byte_runs=spec.pre_tokenizer.byte_runs,
    )
    conf = array("I", bytes(4 * CONF_FIELDS))
    for field, value in (bpe.conf | length_conf(spec.truncation, spec.padding)).items():
        conf[field] = value
    conf[Conf.FLAGS] = bpe.flags | _flags(spec)
    sections = {
        **bpe.sections,
        **normalizer_sections(spec.normalizer),
        **added_token_sections(spec.added_tokens),
        **cut_guard_sections(spec.normalizer, spec.pre_tokenizer.prefix_space, spec.added_tokens),
        **character_sections(),
        **decoder_sections(spec.decoder),
        "POST": _post_section(spec.post_processor),
    }
    if _is_byte_level(spec.decoder):
        sections |= _decoded_bytes(sections["STRO"], sections["STRB"])
    if boundary is not None:
        sections |= _boundary_sections(boundary, automaton, cuts, conf)
    digest = fingerprint(spec, boundary, sections, conf, bpe.live_rules)
    meta = build_meta(
        spec,
        compiler=compiler_digest(),
        boundary=boundary,
        automaton=automaton,
        cuts=cuts,
        statistics=bpe.statistics,
        n_ids=conf[Conf.N_IDS],
    )
    sections["META"] = canonical_json(meta)
    sections["CONF"] = little_endian(conf)
    return write_program(sections, spec.sha256, digest)


def _flags(spec: TokenizerSpec) -> Flag:
    flags = Flag(0)
    if spec.pre_tokenizer.prefix_space:
        flags |= Flag.ADD_PREFIX_SPACE
    if spec.post_processor.trim_offsets:
        flags |= Flag.TRIM_OFFSETS
        if spec.post_processor.add_prefix_space:
            flags |= Flag.TRIM_PREFIX_SPACE
    if spec.decoder.steps is None:
        flags |= Flag.NO_DECODER
    if any(step.op in UNICODE_FORMS for step in spec.normalizer):
        flags |= Flag.NEEDS_NQC
    return flags


def _boundary_sections(
    tables: BoundaryTables, automaton: TokenAutomaton | None, cuts: Cuts | None, conf: array[int]
) -> dict[str, bytes]:
    for field, value in (
        (Conf.N_CLASS, tables.n_class),
        (Conf.N_LEFT, tables.n_left),
        (Conf.N_RIGHT, tables.n_right),
        (Conf.LEFT_START, tables.left_start),
        (Conf.RIGHT_END, tables.right_end),
    ):
        conf[field] = value
    stage1, stage2 = build_trie(tables.class_ranges, 0, 1)
    sections = {"CLS1": stage1, "CLS2": stage2, "LEFT": tables.left, "RGHT": tables.right, "BMAT": tables.matrix}
    if automaton is not None:
        rules = find_rules(tables)
        if rules:
            sections["RULE"] = rules
        conf[Conf.N_TOKEN], conf[Conf.TOKEN_START] = automaton.n_state, automaton.start
        sections |= {"TRAN": automaton.next, "TACT": automaton.actions, "TEOF": automaton.eof}
    if cuts is not None:
        sections |= {"CUT2": cuts.pair, "CUT3": cuts.left_triple + cuts.right_triple, "CUTI": cuts.inner}
    return sections


def find_rules(tables: BoundaryTables) -> bytes:
    """The section RULE: what five classes say of a position, whatever stands around them; b"" where there is none."""
    ascii_class = bytearray(128)
    for first, last, c in tables.class_ranges:
        for code_point in range(first, min(last, 127) + 1):
            ascii_class[code_point] = c
    return _native.find_boundary_rules(
        tables.left,
        tables.right,
        tables.matrix,
        tables.n_class,
        tables.left_start,
        tables.right_end,
        bytes(ascii_class),
    )[0]


@cache
def character_sections() -> Mapping[str, bytes]:
    """CHR1 and CHR2: what the flags of added tokens and Strip see; the same in every program."""
    stage1, stage2 = build_trie(marks(unicode.rust_word(), unicode.white_space()), 0, 1)
    return {"CHR1": stage1, "CHR2": stage2}


def _post_section(post: PostProcessor) -> bytes:
    words = array("I")
    for pairs in (post.before, post.after):
        words.append(len(pairs))
        words.extend(identity for identity, _ in pairs)
    return little_endian(words)


def _is_byte_level(decoder: Decoder) -> bool:
    return decoder.steps is not None and [step.op for step in decoder.steps] == [DecoderOp.BYTE_LEVEL]


def _decoded_bytes(offsets: bytes, strings: bytes) -> dict[str, bytes]:
    """DBYO and DBYT: what each id decodes to; a token with a character outside the byte alphabet is its own UTF-8."""
    places = memoryview(offsets).cast("I")
    tokens = [strings[places[i] : places[i + 1]] for i in range(len(places) - 1)]
    mapped = byte_strings([token.decode() for token in tokens])
    decoded = [read or token for read, token in zip(mapped, tokens, strict=True)]
    starts = array("I", bytes(4))
    total = 0
    for text in decoded:
        total += len(text)
        starts.append(total)
    return {"DBYO": little_endian(starts), "DBYT": b"".join(decoded)}
