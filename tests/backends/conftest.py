"""Each engine of others in turn, as a stand-in; the reference for the same file; a tokenizer that the engine serves."""

from __future__ import annotations

import pytest
import tokenizers

from tests.backends.third_party import FILE, NAMES, opened
from tests.support import third_party_stand_in
from tests.support.third_party_stand_in import StandIn
from toktier import Tokenizer


@pytest.fixture(params=NAMES)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def engine(name: str, monkeypatch: pytest.MonkeyPatch) -> StandIn:
    return third_party_stand_in.install(monkeypatch, name)


@pytest.fixture
def reference() -> tokenizers.Tokenizer:
    return tokenizers.Tokenizer.from_file(str(FILE))


@pytest.fixture
def served(name: str, engine: StandIn) -> Tokenizer:
    return opened(name)
