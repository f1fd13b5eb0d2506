"""How thorough a certification is: one table. What a level asks of each suite is the suite's own (`suites/`)."""

from __future__ import annotations

import enum


class Level(enum.StrEnum):
    """Quick answers "does this work here" in under a minute; standard is what a release rests on; exhaustive takes
    what it is given. Evidence and status lines always name the level."""

    QUICK = "quick"
    STANDARD = "standard"
    EXHAUSTIVE = "exhaustive"


LEVEL_MEANINGS: dict[Level, str] = {
    Level.QUICK: "every table entry, token class and cut kind once; at most 45 s on two cores",
    Level.STANDARD: "quick, one more state than the tables have, every token and merge, corpora; at most 4 min",
    Level.EXHAUSTIVE: "standard, two more states, all class strings up to length 7, fuzz without a limit of its own",
}
