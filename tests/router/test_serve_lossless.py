"""Through the whole router: the tokens are those of a cold start, and the IDs are toktier's. Cases D21, D22 and D23."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import toktier
from tests.router.served_router import Answered, Served
from tests.router.upstream_calls import other, tokens
from tests.support import llama_server, workers
from tests.support.llama_server import LlamaServer
from tests.support.material import Artifacts
from toktier.router.vocabulary import Ids

DECOMPOSED = ["cafe\u0301", "\u1100\u1161", "A\u030a", "de\u0301ja\u0300 vu", "o\u0308 u\u0308"]


@pytest.fixture
def served(llama: LlamaServer, mini: toktier.Tokenizer) -> Iterator[Served]:
    with Served(llama.url, tokenizer=mini) as served:
        yield served


def generated(answered: Answered) -> list[int]:
    ids: list[int] = answered.json["tokens"]
    assert len(ids) == 8
    return ids


# D22, D23


def test_d22_the_same_tokens_come_from_a_reused_prefix_and_from_a_cold_one(served: Served) -> None:
    for number in range(20):
        prompt = tokens(100 + number, 60)
        served.complete([*prompt[:40], other(prompt[40])])
        warm = served.complete(prompt, return_tokens=True)
        cold = served.complete(prompt, return_tokens=True, cache_prompt=False)
        assert (warm.facts.measured, cold.facts.measured) == (40, 0)
        assert generated(warm) == generated(cold)


def test_d22_a_conversation_of_text_says_the_same_with_and_without_reuse(served: Served) -> None:
    texts: list[str] = []
    for reuse in (True, False):
        messages: list[dict[str, str]] = [{"role": "system", "content": "You are brief."}]
        said = []
        for turn in range(5):
            messages.append({"role": "user", "content": f"Question {turn} please answer it."})
            answered = served.ask(
                "/v1/chat/completions",
                {"messages": messages, "max_tokens": 8, "temperature": 0, "cache_prompt": reuse},
            )
            assert answered.facts.ids is Ids.AGREED
            if not reuse:
                assert answered.facts.measured == 0
            elif turn:
                assert answered.facts.measured is not None
                assert answered.facts.measured >= answered.facts.predicted > 0.5 * answered.facts.prompt_tokens
            content = answered.json["choices"][0]["message"]["content"]
            messages.append({"role": "assistant", "content": content})
            said.append(content)
        texts.append("|".join(said))
    assert texts[0] == texts[1]


def test_d23_chunks_are_not_shifted_whatever_the_server_was_started_with(
    start_llama: Callable[..., LlamaServer], mini: toktier.Tokenizer
) -> None:
    server = start_llama("--cache-reuse", "16", "--parallel", "1")
    with Served(server.url, tokenizer=mini) as served:
        for number in range(8):
            prompt = tokens(200 + number, 120)
            shorter = [*prompt[:40], *prompt[60:]]
            served.complete(prompt)
            warm = served.complete(shorter, return_tokens=True)
            cold = served.complete(shorter, return_tokens=True, cache_prompt=False)
            assert (warm.counts, cold.counts) == ((40, 60), (0, 100))
            assert generated(warm) == generated(cold)
    # Without what the router writes, the server shifts: the test would see it.
    prompt = tokens(300, 120)
    server.post("/completion", {"prompt": prompt, "id_slot": 0, "n_predict": 1})
    shifted = server.post("/completion", {"prompt": [*prompt[:40], *prompt[60:]], "id_slot": 0, "n_predict": 1})
    assert shifted["timings"]["cache_n"] > 40


# D21


@pytest.mark.parametrize("text", DECOMPOSED, ids=ascii)
@pytest.mark.parametrize("native", [True, False])
def test_d21_a_text_goes_up_as_the_ids_of_toktier(
    served: Served, llama: LlamaServer, mini: toktier.Tokenizer, text: str, native: bool
) -> None:
    text = f"{text} and {text} once more, as long as it takes to be worth it"
    ids = mini.encode(text).ids
    assert llama.post("/tokenize", {"content": text, "add_special": True})["tokens"] != ids
    answered = served.complete(text, native=native)
    assert answered.facts.ids is Ids.SENT
    assert answered.facts.prompt_tokens == len(ids)
    assert sum(answered.counts) == len(ids)
    same = served.complete(ids, native=native)
    assert same.counts == (len(ids) - 1, 1)


@pytest.mark.parametrize("text", DECOMPOSED, ids=ascii)
def test_d21_a_chat_is_sent_normalized_where_the_server_does_not(
    served: Served, mini: toktier.Tokenizer, text: str
) -> None:
    text = f"{text} and {text} once more"
    answered = served.chat(text)
    assert answered.facts.ids is Ids.NORMALIZED
    rendered = f"<|im_start|>user\n{text}<|im_end|>\n<|im_start|>assistant\n"
    assert answered.facts.prompt_tokens == len(mini.encode(rendered).ids)
    again = served.chat(text)
    assert (again.facts.measured, again.facts.stale) == (again.facts.prompt_tokens - 1, False)


def test_d21_tokenize_is_answered_by_toktier(served: Served, mini: toktier.Tokenizer) -> None:
    for text in DECOMPOSED:
        assert served.post("/tokenize", {"content": text}).json() == {"tokens": mini.encode(text).ids}


@pytest.mark.ci
def test_d21_the_vocabulary_of_qwen3(
    artifacts: Artifacts, start_llama: Callable[..., LlamaServer], tmp_path_factory: pytest.TempPathFactory
) -> None:
    path: Path = artifacts.path("qwen3")
    tokenizer = toktier.from_file(path)
    model = llama_server.make_model(path, workers.directory_of_all(tmp_path_factory, "models") / "qwen3.gguf")
    server = start_llama(model=model)
    with Served(server.url, tokenizer=tokenizer) as served:
        for text in DECOMPOSED[:3]:
            ids = tokenizer.encode(f"{text} and {text} once more, as long as it takes to be worth it").ids
            answered = served.complete(f"{text} and {text} once more, as long as it takes to be worth it")
            assert (answered.facts.ids, sum(answered.counts)) == (Ids.SENT, len(ids))
            assert served.complete(ids).counts == (len(ids) - 1, 1)
            assert served.chat(text).facts.ids is Ids.NORMALIZED
        clean = served.chat("A text without marks that stand apart.")
        assert clean.facts.ids is Ids.AGREED
