"""The reader of rank files: what it takes, and that everything else is damage with its line."""

from __future__ import annotations

import base64

import pytest

from toktier.conversion import tiktoken_ranks
from toktier.conversion.tiktoken_ranks import read_ranks
from toktier.errors import ArtifactDamaged

BYTES = [bytes([value]) for value in range(256)]


def rank_file(tokens: list[bytes]) -> bytes:
    return b"".join(base64.b64encode(token) + b" %d\n" % rank for rank, token in enumerate(tokens))


GOOD = rank_file([*BYTES, b"ab", b"abc"])


def test_reads_tokens_in_file_order() -> None:
    ranks = read_ranks(GOOD)
    assert list(ranks) == [*BYTES, b"ab", b"abc"]
    assert ranks[b"abc"] == 257


def test_order_of_the_file_is_not_that_of_the_ranks() -> None:
    lines = GOOD.splitlines(keepends=True)
    assert list(read_ranks(b"".join(reversed(lines)))) == [b"abc", b"ab", *reversed(BYTES)]


def test_line_end_at_the_end_may_be_absent() -> None:
    assert read_ranks(GOOD[:-1]) == read_ranks(GOOD)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b"", "expected TOKEN RANK"),
        (b"YWJj", "expected TOKEN RANK"),
        (b"YWJj  300", "expected TOKEN RANK"),
        (b"YWJj 300 ", "expected TOKEN RANK"),
        (b"YWJj 300\r", "expected TOKEN RANK"),
        (b"YWJj +300", "expected TOKEN RANK"),
        (b"YWJj 3_00", "expected TOKEN RANK"),
        (b"YWJj -1", "expected TOKEN RANK"),
        (b"YWJj 4294967296", "expected TOKEN RANK"),
        (b"YWJj " + b"9" * 5000, "expected TOKEN RANK"),
        (b" 300", "expected a token in base64"),
        (b"YWJjZ 300", "expected a token in base64"),
        (b"YWJjZB== 300", "expected a token in base64"),  # trailing bits that no encoder writes
        (b"YWJjZA 300", "expected a token in base64"),
        (b"YW Jj 300", "expected TOKEN RANK"),
        (b"YW-_ 300", "expected a token in base64"),
        (b"YWJj\xff 300", "expected a token in base64"),
        (b"YWI= 300", "repeats the token"),
        (b"eHl6 257", "repeats the rank 257"),
        (base64.b64encode(b"x" * 4097) + b" 300", "token of 4,097 bytes"),
    ],
)
def test_other_lines_are_damage_with_their_number(line: bytes, said: str) -> None:
    with pytest.raises(ArtifactDamaged, match="line 259") as caught:
        read_ranks(GOOD + line + b"\n")
    assert said in caught.value.message
    assert len(caught.value.message) < 600


def test_every_byte_must_be_a_token() -> None:
    with pytest.raises(ArtifactDamaged, match="1 single bytes are no tokens, the first is 0xFF"):
        read_ranks(rank_file([*BYTES[:-1], b"ab"]))
    with pytest.raises(ArtifactDamaged):
        read_ranks(b"")


def test_bounds_hold_before_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiktoken_ranks, "MAX_TOKENS", 257)
    with pytest.raises(ArtifactDamaged, match="more than 257 tokens"):
        read_ranks(GOOD)
    monkeypatch.setattr(tiktoken_ranks, "MAX_BYTES", len(GOOD) - 1)
    with pytest.raises(ArtifactDamaged, match="a rank file has at most"):
        read_ranks(GOOD)
