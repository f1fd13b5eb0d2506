"""FastTokenizer: a Tokenizer behind the calls of a fast tokenizer of `transformers` (docs/transformers.md).

Results equal those of `transformers.PreTrainedTokenizerFast` on the same tokenizer.json and settings, of the version
that tests compare with. Columns of plain texts are composed from the ids of the engine; what the engine does not know
is asked of the reference, through the same shape; what neither serves alike is refused. transformers is not imported.
Not here: finding and compiling the file (`toktier.api`).
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from toktier.api import from_file
from toktier.compat import call_options as names
from toktier.compat import composed_rows, padded_rows, reference_calls
from toktier.compat.batch_encoding import BatchEncoding
from toktier.compat.call_inputs import inputs_of, is_batch, require_texts, without_rows
from toktier.compat.call_options import CallOptions, InvalidCall, strategies
from toktier.compat.composed_rows import Frame, Row
from toktier.compat.file_facts import FileFacts
from toktier.compat.loader_config import LoaderConfig, loaded_values, loader_config, read_config
from toktier.compat.reference_calls import ReferenceCalls, Template
from toktier.compat.refused import Refusals
from toktier.compat.tensor_columns import as_array, tensors
from toktier.compat.vocabulary_calls import VocabularyCalls
from toktier.errors import ToktierWarning
from toktier.routing.vocabulary import BackendId, Sidecar
from toktier.tokenizer import Tokenizer

if TYPE_CHECKING:
    from toktier._native import EncodingBatch


class FastTokenizer(VocabularyCalls, Refusals):
    """The calls of a fast tokenizer of transformers on a Tokenizer. Any number of threads may call one at once; its
    attributes (`pad_token`, `padding_side`, ...) are for all of them."""

    is_fast = True

    def __init__(
        self,
        tokenizer: Tokenizer,
        config: Mapping[str, Any] | str | os.PathLike[str] | None = None,
        special_tokens_map: Mapping[str, Any] | str | os.PathLike[str] | None = None,
        **settings: Any,
    ) -> None:
        """`config`: a tokenizer_config.json; `special_tokens_map`: the file of that name; `settings`: members of either
        as keywords, which go before both. Of the files counts what counts to a loader (`loaded_values`).

        Raises UnsupportedConfig for tokens that the tokenizer does not have as added tokens (transformers would add
        them, which makes another tokenizer), InvalidCall, ArtifactNotFound, ArtifactDamaged.
        """
        values = loaded_values(read_config(config), read_config(special_tokens_map), settings)
        read = loader_config(values)
        self._tokenizer, self._facts = tokenizer, FileFacts(tokenizer)
        self._facts.require_declared(values, [*read.named.values(), *read.extra])
        stored = self._facts.stored_sides()
        self._named, self._extra = read.named, read.extra
        if stored.pad_token is not None and "pad_token" not in self._named:
            self._facts.require_declared({}, [stored.pad_token])
            self._named["pad_token"] = stored.pad_token
        self.padding_side = read.padding_side or stored.padding or "right"
        self.truncation_side = read.truncation_side or stored.truncation or "right"
        self.model_max_length = read.max_length
        self.model_input_names = read.input_names
        self.clean_up_tokenization_spaces = read.clean_up
        self.split_special_tokens = read.split_special
        self.pad_token_type_id = 0
        self._clean_up_bpe = read.clean_up_bpe
        self._flags = {
            "add_bos_token": bool(read.add_bos_token and "bos_token" in read.named),
            "add_eos_token": bool(read.add_eos_token and "eos_token" in read.named),
        }
        template = self._given_template(read)
        self._template_given = template is not None
        self._frames = self._given_frame(read) if self._template_given else None
        self._reference = ReferenceCalls(tokenizer, template)
        self._warned_of_length = False

    @classmethod
    def from_file(cls, path: str | os.PathLike[str], *, load: Mapping[str, Any] | None = None, **settings: Any) -> Self:
        """Of a tokenizer.json alone, as `PreTrainedTokenizerFast(tokenizer_file=path, **settings)`. `load`: keywords of
        `toktier.from_file`, such as policy."""
        return cls(from_file(path, **dict(load or {})), **settings)

    @classmethod
    def from_directory(
        cls, directory: str | os.PathLike[str], *, load: Mapping[str, Any] | None = None, **settings: Any
    ) -> Self:
        """Of a directory with tokenizer.json and, where they are there, tokenizer_config.json (whose added tokens are
        merged) and special_tokens_map.json, as `PreTrainedTokenizerFast.from_pretrained(directory, **settings)`."""
        base = Path(directory)
        config, special = base / "tokenizer_config.json", base / "special_tokens_map.json"
        sidecar = {"sidecar": Sidecar.MERGE} if config.is_file() else {}
        tokenizer = from_file(base / "tokenizer.json", **{**sidecar, **dict(load or {})})
        return cls(tokenizer, config if config.is_file() else None, special if special.is_file() else None, **settings)

    # calls

    def __call__(
        self,
        text: Any = None,
        text_pair: Any = None,
        text_target: Any = None,
        text_pair_target: Any = None,
        add_special_tokens: bool = True,
        padding: bool | str = False,
        truncation: bool | str | None = None,
        max_length: int | None = None,
        stride: int = 0,
        is_split_into_words: bool = False,
        pad_to_multiple_of: int | None = None,
        padding_side: str | None = None,
        return_tensors: str | None = None,
        return_token_type_ids: bool | None = None,
        return_attention_mask: bool | None = None,
        return_overflowing_tokens: bool = False,
        return_special_tokens_mask: bool = False,
        return_offsets_mapping: bool = False,
        return_length: bool = False,
        verbose: bool = True,
        *,
        split_special_tokens: bool | None = None,
        max_target_length: int | None = None,
    ) -> BatchEncoding:
        """Columns of a text, of a text and its pair, or of a list of texts; keywords as in transformers.

        A single text gives flat lists, unless tensors or overflowing tokens are asked for. Offsets are code points.
        Raises InvalidCall, InvalidText, UnsupportedConfig.
        """
        if text is None and text_target is None:
            raise InvalidCall("neither text nor text_target is given: expected one of them", remedy="give a text")
        pad, cut, limit = strategies(padding, truncation, max_length, self.model_max_length, verbose=verbose)
        options = CallOptions(
            add_special_tokens=add_special_tokens,
            plain=self.split_special_tokens if split_special_tokens is None else split_special_tokens,
            split_into_words=is_split_into_words,
            truncation=cut,
            padding=pad,
            max_length=limit,
            stride=stride,
            multiple_of=pad_to_multiple_of,
            truncation_side=self.truncation_side,
            padding_side=self.padding_side if padding_side is None else padding_side,
            pad_type_id=self.pad_token_type_id,
            columns=names.columns(
                self.model_input_names,
                return_token_type_ids,
                return_attention_mask,
                return_special_tokens_mask,
                return_offsets_mapping,
                return_length,
            ),
            overflow=return_overflowing_tokens,
            tensors=return_tensors,
        )
        if pad is not None:
            options = self._with_pad_token(options)
        options = names.checked(options)
        result = None if text is None else self._encoded(text, text_pair, options, verbose)
        if text_target is None and result is not None:
            return result
        target_length = limit if max_target_length is None else max_target_length
        goal = names.checked(replace(options, max_length=target_length))
        targets = self._encoded(text_target, text_pair_target, goal, verbose)
        if result is None:
            return targets
        result["labels"] = targets[names.INPUT_IDS]
        return result

    def pad(
        self,
        encoded_inputs: Any,
        padding: bool | str = True,
        max_length: int | None = None,
        pad_to_multiple_of: int | None = None,
        padding_side: str | None = None,
        return_attention_mask: bool | None = None,
        return_tensors: str | None = None,
        verbose: bool = True,
    ) -> BatchEncoding:
        """Rows that are encoded already, padded together: a mapping of one row or of a batch, or a list of mappings.

        Ids, `attention_mask`, `token_type_ids` and `special_tokens_mask` are padded, other columns stay; rows that are
        arrays or tensors give such. The result has no encodings. Raises InvalidCall, BackendUnavailable.
        """
        pad, _, limit = strategies(padding, None, max_length, self.model_max_length, verbose=verbose)
        options = CallOptions(
            padding=pad,
            max_length=limit,
            multiple_of=pad_to_multiple_of,
            padding_side=self.padding_side if padding_side is None else padding_side,
            pad_type_id=self.pad_token_type_id,
            tensors=return_tensors,
        )
        main = self.model_input_names[0]
        usual = names.ATTENTION_MASK in self.model_input_names
        columns = padded_rows.columns_of(encoded_inputs, main)
        options = names.checked(options if pad is None else self._with_pad_token(options))
        return padded_rows.padded(columns, main, options, mask=return_attention_mask, usual_mask=usual)

    def encode(
        self,
        text: Any,
        text_pair: Any = None,
        add_special_tokens: bool = True,
        padding: bool | str = False,
        truncation: bool | str | None = None,
        max_length: int | None = None,
        stride: int = 0,
        padding_side: str | None = None,
        return_tensors: str | None = None,
        **options: Any,
    ) -> Any:
        """`input_ids` of a call with the same arguments."""
        result = self(
            text,
            text_pair,
            add_special_tokens=add_special_tokens,
            padding=padding,
            truncation=truncation,
            max_length=max_length,
            stride=stride,
            padding_side=padding_side,
            return_tensors=return_tensors,
            **options,
        )
        return result[names.INPUT_IDS]

    def encode_plus(self, text: Any, text_pair: Any = None, **options: Any) -> BatchEncoding:
        """The name that transformers 4 has for a call with one text."""
        return self(text, text_pair, **options)

    def batch_encode_plus(self, batch_text_or_text_pairs: Any, **options: Any) -> BatchEncoding:
        """The name that transformers 4 has for a call with a list of texts, or of pairs."""
        return self(list(batch_text_or_text_pairs), **options)

    def tokenize(self, text: str, pair: str | None = None, add_special_tokens: bool = False, **options: Any) -> Any:
        """Token strings of a text."""
        result = self(text, pair, add_special_tokens=add_special_tokens, **options)
        return result.tokens()

    def num_special_tokens_to_add(self, pair: bool = False) -> int:
        """Ids that a template puts around a text, or around a text and its pair."""
        if not pair and self._facts.composes:
            return len(self._frame(types=False))
        count: int = self._reference.ask(lambda reference: reference.num_special_tokens_to_add(pair))
        return count

    @property
    def max_len_single_sentence(self) -> int:
        """Tokens of a text that a model takes beside those of the template."""
        return self.model_max_length - self.num_special_tokens_to_add()

    @property
    def max_len_sentences_pair(self) -> int:
        """The same of a text and its pair together."""
        return self.model_max_length - self.num_special_tokens_to_add(pair=True)

    @property
    def tokenizer(self) -> Tokenizer:
        """The Tokenizer behind the calls."""
        return self._tokenizer

    def __repr__(self) -> str:
        return f"<toktier.compat FastTokenizer of {self._tokenizer!r}>"

    # one call

    def _encoded(self, text: Any, pair: Any, options: CallOptions, verbose: bool) -> BatchEncoding:
        batched = is_batch(text, options.split_into_words)
        inputs = inputs_of(text, pair, batched)
        if not options.split_into_words:
            require_texts(inputs)
        limit, composes = None, self._facts.composes and all(isinstance(item, str) for item in inputs)
        frame = Frame()
        if composes and not options.split_into_words and not self._offsets_differ(options):
            frame = self._frame(types=names.TYPE_IDS in options.columns)
            framed = len(frame)
            if not options.add_special_tokens:
                frame = Frame(text_type=frame.text_type)
            try:
                limit = composed_rows.room(options, frame, framed)
            except ValueError:
                composes = False
        else:
            composes = False
        if composes:
            batch = self._tokenizer.encode_batch(inputs, plain=options.plain)
            rows = composed_rows.rows_of(batch, options, frame, limit)
            result = self._composed(inputs, batch, rows, options, frame)
        else:
            result = self._referred(inputs, options)
        self._warn_of_length(result, options, verbose)
        return result if batched or options.tensors or options.overflow else without_rows(result)

    def _composed(
        self, inputs: list[str], batch: EncodingBatch, rows: list[Row], options: CallOptions, frame: Frame
    ) -> BatchEncoding:
        columns: dict[str, Any]
        if options.tensors is None:
            columns = dict(composed_rows.as_lists(batch, rows, options, frame))
        else:
            columns = composed_rows.as_arrays(batch, rows, options, frame)
        if options.overflow:
            columns[names.SAMPLE_OF_ROW] = [row.sample for row in rows]
        alone = replace(options, columns=(names.INPUT_IDS,))

        def encodings() -> list[Any]:
            return self._all_rows(inputs, options)[0]

        def ids(row: int) -> list[int]:
            found: list[int] = composed_rows.as_lists(batch, [rows[row]], alone, frame)[names.INPUT_IDS][0]
            return found

        return BatchEncoding(tensors(columns, options.tensors), encodings, ids=ids, backend=batch.backend)

    def _referred(self, inputs: list[Any], options: CallOptions) -> BatchEncoding:
        encodings, samples = self._all_rows(inputs, options)
        columns: dict[str, Any] = dict(reference_calls.as_lists(encodings, options))
        if options.tensors is not None:
            columns = {name: as_array(rows) for name, rows in columns.items()}
        if options.overflow:
            columns[names.SAMPLE_OF_ROW] = samples
        return BatchEncoding(tensors(columns, options.tensors), encodings, backend=BackendId.HF.value)

    def _all_rows(self, inputs: Sequence[Any], options: CallOptions) -> tuple[list[Any], list[int]]:
        """The reference's encodings, overflowing ones behind their own where they are asked for, and their inputs."""
        encodings: list[Any] = []
        samples: list[int] = []
        for sample, encoding in enumerate(self._reference.encode(inputs, options)):
            parts = [encoding, *(encoding.overflowing if options.overflow else ())]
            encodings += parts
            samples += [sample] * len(parts)
        return encodings, samples

    # what frames a text

    def _frame(self, *, types: bool) -> Frame:
        """Of the template that is in force; type ids only where they are asked for: they cost a look into the file."""
        if self._frames is not None:
            return self._frames
        return self._facts.frame(types=types)

    def _given_template(self, read: LoaderConfig) -> Template | None:
        """What transformers puts in place of the file's post-processor where the config names bos or eos flags."""
        if read.add_bos_token is None and read.add_eos_token is None:
            return None
        bos = read.named.get("bos_token") if read.add_bos_token else None
        eos = read.named.get("eos_token") if read.add_eos_token else None
        single = f"{bos + ':0 ' if bos else ''}$A:0{' ' + eos + ':0' if eos else ''}"
        pair = f"{single}{' ' + bos + ':1' if bos else ''} $B:1{' ' + eos + ':1' if eos else ''}"
        used = dict.fromkeys(token for token in (bos, eos) if token)
        return single, pair, tuple((token, self._tokenizer.token_to_id(token) or 0) for token in used)

    def _given_frame(self, read: LoaderConfig) -> Frame:
        def ids(flag: bool | None, name: str) -> tuple[int, ...]:
            token = read.named.get(name) if flag else None
            found = None if token is None else self._tokenizer.token_to_id(token)
            return () if found is None else (found,)

        before, after = ids(read.add_bos_token, "bos_token"), ids(read.add_eos_token, "eos_token")
        return Frame(before, after, (0,) * len(before), 0, (0,) * len(after))

    def _offsets_differ(self, options: CallOptions) -> bool:
        """Whether offsets may not be those of the whole text: the file's post-processor trims them, and another one
        stands in its place, or it sees parts of a text, of each of which the first token is treated apart."""
        other = self._template_given or options.truncation is not None
        return other and self._facts.trims_offsets and names.OFFSETS in options.columns

    def _with_pad_token(self, options: CallOptions) -> CallOptions:
        token = self._named.get("pad_token")
        token_id = None if token is None else self.convert_tokens_to_ids(token)
        if token is None or token_id is None:
            raise InvalidCall(
                "padding is asked for, and the tokenizer has no padding token",
                details={"argument": "padding"},
                remedy="name one that it has, for example tokenizer.pad_token = tokenizer.eos_token",
            )
        return replace(options, pad_token=token, pad_id=token_id)

    def _warn_of_length(self, result: BatchEncoding, options: CallOptions, verbose: bool) -> None:
        if options.max_length is not None or not verbose or self._warned_of_length or not self.model_max_length:
            return
        if self.model_max_length >= names.NO_LIMIT:
            return
        longest = max(len(row) for row in result[names.INPUT_IDS])
        if longest > self.model_max_length:
            self._warned_of_length = True
            text = f"a row has {longest} tokens, more than the {self.model_max_length} that the model takes"
            warnings.warn(text, ToktierWarning, stacklevel=4)
