"""Words that change what a sentence says while it stays alike to any measure: numbers, denials, opposites.

English above all, with the denials of a few more languages. A word that is missing here costs an error of the report
towards cosmetic; one that is ambiguous, towards substantive. Not here: how they are counted (`divergence`).
"""

from __future__ import annotations

from typing import Final


def _listed(words: str) -> list[str]:
    return words.split()


# "one" is left out: it is a pronoun more often than a number.
NUMBER_WORDS: Final[dict[str, str]] = {
    **{word: str(value) for value, word in enumerate(_listed("two three four five six seven eight nine ten"), 2)},
    **{word: str(value) for value, word in enumerate(_listed("eleven twelve thirteen fourteen fifteen sixteen"), 11)},
    **{word: str(value) for value, word in enumerate(_listed("seventeen eighteen nineteen twenty"), 17)},
    **{word: f"{tens}0" for tens, word in enumerate(_listed("thirty forty fifty sixty seventy eighty ninety"), 3)},
    "zero": "0",
    "twice": "2",
    "hundred": "100",
    "thousand": "1000",
    "million": "1000000",
    "billion": "1000000000",
    "percent": "%",
}

DENIALS: Final = frozenset(
    _listed("no not none never cannot without neither nor nothing nobody nowhere hardly")
    + _listed("nicht nichts kein keine keinen keinem keiner keines nie niemals niemand ohne weder")
    + _listed("ne pas jamais sans aucun aucune rien non nunca jamás ningún ninguno ninguna")
    + _listed("не нет никогда ничего никто без нельзя")
)

_OPPOSITES: Final = (
    "yes / no",
    "true / false",
    "correct right / incorrect wrong",
    "possible / impossible",
    "always / never",
    "all / none",
    "before / after",
    "more greater larger bigger higher longer / less fewer smaller lower shorter",
    "ascending / descending",
    "increase increases increased rises rose grows grew / decrease decreases decreased falls fell shrinks shrank",
    "first / last",
    "left / right",
    "above over / below under",
    "on / off",
    "open opens opened opening / close closes closed closing",
    "enable enables enabled / disable disables disabled",
    "allow allows allowed / deny denies denied forbid forbids forbidden",
    "safe / unsafe dangerous",
    "valid / invalid",
    "win wins won / lose loses lost",
    "buy buys bought / sell sells sold",
    "start starts started begins began / stop stops stopped ends ended",
    "north / south",
    "east / west",
    "hot / cold",
    "early earlier / late later",
    "up / down",
    "inside / outside",
    "maximum / minimum",
    "success succeeds succeeded / failure fails failed",
    "add adds added / remove removes removed subtract subtracts",
    "ja / nein",
    "richtig / falsch",
    "oui / non",
    "vrai / faux",
    "sí / no",
    "да / нет",
)
OPPOSITES: Final = tuple(
    (frozenset(one.split()), frozenset(other.split())) for one, _, other in (pair.partition("/") for pair in _OPPOSITES)
)
