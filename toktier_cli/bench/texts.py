"""The texts of `toktier bench`: prose, code and several scripts, small enough to ship. Written for this; no corpus.

They are met again and again, so a figure of theirs is a warm one. `benchmarks/` has corpora.
"""

from __future__ import annotations

ENGLISH = """\
The harbour master kept two clocks. One showed the hour of the town, which everybody agreed upon; the other followed the
tide, and nobody agreed upon that but the sea. When a captain asked him when he could sail, he looked at both, wrote
down three numbers, and said: "Between a quarter past four and ten to five, if the wind stays where it is." It seldom
did. In 31 years he had been wrong on 212 days, and he could tell you each of them, with its reason, and what it cost.
His daughter measured everything else. She weighed the letters before they were posted, counted the steps from the quay
to the church (1,184), and didn't believe a word that wasn't written down twice, once by each of two people who had not
spoken to one another. "It isn't distrust," she'd say. "It's arithmetic: two mistakes are seldom the same mistake."
"""
CODE = '''\
def merge(left: list[int], right: list[int]) -> list[int]:
    """Both sorted lists as one; equal items of `left` come first."""
    merged, i, j = [], 0, 0
    while i < len(left) and j < len(right):
        if right[j] < left[i]:
            merged.append(right[j]); j += 1
        else:
            merged.append(left[i]); i += 1
    return merged + left[i:] + right[j:]

#define CLAMP(x, lo, hi) ((x) < (lo) ? (lo) : (x) > (hi) ? (hi) : (x))
static inline uint64_t rotl(uint64_t v, int n) { return (v << n) | (v >> (64 - n)); }
'''
OTHER = """\
Der Hafenmeister hatte zwei Uhren, und keine ging so, wie er es gern gehabt hätte; über die Größe stritt niemand.
Le maître du port possédait deux horloges : l'une à l'heure de la ville, l'autre à celle des marées.
У начальника порта было двое часов: одни показывали городское время, другие следовали за приливом.
港务长有两只钟。一只走的是城里的时间，另一只跟着潮水走，只有大海同意它。
港長は時計を二つ持っていた。一つは町の時刻を示し、もう一つは潮に従っていた。
كان لدى مدير الميناء ساعتان، إحداهما لوقت المدينة والأخرى للمدّ والجزر.
"""
ALL = ENGLISH + "\n" + CODE + "\n" + OTHER
SHORT = "hello world"
ASCII_256 = ENGLISH[:256]
OTHER_256 = " ".join("".join(c for c in OTHER if not c.isascii() or c == " ").split())[:256]
