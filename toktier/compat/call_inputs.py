"""What a call in the shape of `transformers` is given and gives back: texts, pairs and batches told apart.
Not here: the options of the call (`call_options`).
"""

from __future__ import annotations

from typing import Any

from toktier.compat.batch_encoding import BatchEncoding
from toktier.compat.call_options import InvalidCall


def is_batch(text: Any, split_into_words: bool) -> bool:
    """Whether `text` is several inputs. Raises InvalidCall for what is no text."""
    first = text[0] if isinstance(text, (list, tuple)) and text else None
    if not isinstance(text, (str, list, tuple)) or not isinstance(first, (str, list, tuple, type(None))):
        raise InvalidCall(
            f"the text is a {type(text).__name__}: expected a str, a list of them, or lists of words",
            details={"argument": "text"},
            remedy="give text as str",
        )
    if split_into_words:
        return isinstance(first, (list, tuple))
    return isinstance(text, (list, tuple))


def inputs_of(text: Any, pair: Any, batched: bool) -> list[Any]:
    if not batched:
        return [(text, pair)] if pair else [text]
    if not text:
        raise InvalidCall("the batch is empty: expected one text or more", details={"argument": "text"})
    if pair is None:
        return list(text)
    if isinstance(pair, str) or len(pair) != len(text):
        raise InvalidCall(
            f"text_pair does not go with {len(text)} texts: expected a list of as many",
            details={"argument": "text_pair"},
            remedy="give one pair for each text",
        )
    return list(zip(text, pair, strict=True))


def require_texts(inputs: list[Any]) -> None:
    """Raises InvalidCall for an input that is neither a text nor a pair of texts."""
    for index, item in enumerate(inputs):
        pair = isinstance(item, (list, tuple)) and len(item) == 2
        wrong = [part for part in (item if pair else [item]) if not isinstance(part, str)]
        if wrong:
            raise InvalidCall(
                f"input {index} is or holds a {type(wrong[0]).__name__}: expected a text, or a pair of texts",
                details={"argument": "text", "index": index},
                remedy="give texts as str; lists of words go with is_split_into_words=True",
            )


def without_rows(result: BatchEncoding) -> BatchEncoding:
    """The one row of a single text as flat lists; `length` stays a list, as in transformers."""
    result.data = {name: v[0] if v and isinstance(v[0], list) else v for name, v in result.data.items()}
    return result
