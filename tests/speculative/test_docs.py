"""The examples of docs/shared-lookup.md run, and say how two requests of a scope help each other."""

from __future__ import annotations

import re
from types import SimpleNamespace

import pytest

from tests.support.material import ROOT

FIRST, LOOP = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "shared-lookup.md").read_text("utf-8"), re.DOTALL)
PROMPT, ANSWER = [*range(100, 120)], [*range(200, 240), 7]


class Model:
    """Says ANSWER whatever it is asked, and counts its steps."""

    def __init__(self) -> None:
        self.said, self.steps = 0, 0

    def __bool__(self) -> bool:
        return self.said < len(ANSWER)

    def verify(self, draft: list[int] | None) -> tuple[int, list[int]]:
        rest, accepted = ANSWER[self.said :], 0
        while draft and accepted < min(len(draft), len(rest) - 1) and draft[accepted] == rest[accepted]:
            accepted += 1
        self.said += accepted + 1
        self.steps += 1
        return accepted, rest[: accepted + 1]


def test_the_first_example_prints_what_stands_beside_it(capsys: pytest.CaptureFixture[str]) -> None:
    exec(FIRST, {})
    assert capsys.readouterr().out.splitlines() == re.findall(r"print\(.*\) +# (.*)", FIRST)


def test_the_example_of_a_loop() -> None:
    once, each = LOOP.split("request = Proposer", 1)
    names: dict[str, object] = {"tok": SimpleNamespace(fingerprint="f"), "prompt_ids": PROMPT}
    exec(once, names)
    steps = []
    for _ in range(2):
        model = Model()
        names |= {"generating": model, "verify": model.verify}
        exec("request = Proposer" + each, names)
        steps.append(model.steps)
    assert steps[0] == len(ANSWER), "nothing was there to copy"
    assert steps[1] < len(ANSWER) // 4, "the same answer again"
