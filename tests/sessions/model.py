"""A plain model of a session, ids that are a function of the text, and scripts of changes for both."""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field

from hypothesis import strategies as st

from tests.sessions.places import Place
from toktier.sessions.protocol import Session, Store
from toktier.sessions.records import Append, CommitPoint, SessionState

FINGERPRINT = "f" * 64
OTHER = "0" * 64


def ids_of(text: str | bytes) -> bytes:
    """One id a code point: any position between two of them is a cut."""
    text = text.decode() if isinstance(text, bytes) else text
    return array("I", [ord(c) * 3 + 1 for c in text]).tobytes()


def change(revision: int, text: str, tail: str = "") -> Append:
    return Append(revision, ids_of(text), text.encode(), tail.encode(), ids_of(tail))


@dataclass
class Model:
    """What a session must be: its committed parts, in order, and its tail."""

    parts: list[str] = field(default_factory=list)
    tail: str = ""
    revision: int = 0

    def append(self, text: str, tail: str) -> None:
        self.parts += [text] if text else []
        self.tail, self.revision = tail, self.revision + 1

    def replace(self, sequence: int, text: str, tail: str) -> None:
        del self.parts[sequence:]
        self.append(text, tail)

    @property
    def text(self) -> bytes:
        return "".join(self.parts).encode()

    @property
    def ends(self) -> list[int]:
        """Committed bytes at each commit point after the beginning."""
        sizes, total = [], 0
        for part in self.parts:
            total += len(part.encode())
            sizes.append(total)
        return sizes


@dataclass(frozen=True)
class Step:
    """Append `text` after the given share of the commit points; 1.0: after the last."""

    keep: float
    text: str
    tail: str

    def sequence(self, points: int) -> int:
        return min(points, int(self.keep * (points + 1)))


_PIECES = st.text(st.characters(exclude_categories=("Cs",)), min_size=1, max_size=8)
# Long enough that scripts pass ends of kibibytes and marks, and end on them exactly.
_TEXTS = st.one_of(
    st.just(""),
    _PIECES,
    st.builds(lambda piece, count: piece * count, _PIECES, st.integers(1, 900)),
    st.sampled_from([1023, 1024, 1025, 4095, 4096, 4097, 8192]).map(lambda n: "z" * n),
)
SCRIPTS = st.lists(
    st.builds(
        Step, st.one_of(st.just(1.0), st.floats(0, 1)), _TEXTS, st.text(st.characters(exclude_categories=("Cs",)))
    ),
    min_size=1,
    max_size=12,
)


def apply(session: Session, model: Model, step: Step) -> None:
    """The same change of both. The text before an edit is presented."""
    sequence = step.sequence(len(model.parts))
    append = change(session.state.revision, step.text, step.tail)
    if sequence == len(model.parts):
        revision = session.append(append)
        model.append(step.text, step.tail)
    else:
        point = point_of(session, sequence)
        before = "".join(model.parts[:sequence]).encode()
        revision = session.replace(point, append, before=before)
        model.replace(sequence, step.text, step.tail)
    assert revision == model.revision


def point_of(session: Session, sequence: int) -> CommitPoint:
    return session.points()[sequence - 1] if sequence else session.last_point("tokens", -1)


def check(session: Session, model: Model) -> None:
    """The session is what the model says."""
    state = session.state
    assert session.ids() == ids_of(model.text)
    assert [p.text_bytes for p in session.points()] == model.ends
    assert (state.revision, state.sequence, state.text_bytes) == (model.revision, len(model.parts), len(model.text))
    assert state.tokens == state.code_points == len(model.text.decode())
    assert (state.tail_text.decode(), state.tail_ids) == (model.tail, ids_of(model.tail))
    assert model.text.endswith(state.open_text)
    assert len(state.open_text) == len(model.text) % 1024
    if state.keep_text:
        assert session.text() == model.text


def comparable(state: SessionState) -> tuple[object, ...]:
    """All of a state but its number and what eviction alone uses."""
    return tuple(getattr(state, name) for name in SessionState.__slots__ if name not in ("number", "held"))  # type: ignore[attr-defined]


def filled(place: Place, texts: list[str], *, keep_text: bool = False, name: str = "chat") -> Session:
    session = place.open().open(name, FINGERPRINT, keep_text=keep_text)
    for text in texts:
        session.append(change(session.state.revision, text, "tail"))
    return session


TEXT = "".join(chr(97 + (k * k // 7) % 26) for k in range(40_000))


def remembered(store: Store, text: str, size: int) -> int:
    parts = [text[at : at + size] for at in range(0, len(text), size)]
    number = store.remember(FINGERPRINT, [change(k, part) for k, part in enumerate(parts)])
    assert number is not None
    return number
