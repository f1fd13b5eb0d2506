"""The error of a part of toktier that needs a distribution which is not installed.

Not here: engines that come with toktier or by name (`toktier.backends`), which have words of their own.
"""

from __future__ import annotations

from toktier.errors import BackendUnavailable


def missing_distribution(what: str, distribution: str, extra: str, requirement: str) -> BackendUnavailable:
    """`what`: what needs it, with the verb, as in "signatures need". `extra`: of toktier, that names it. The remedy
    names the plain distribution: the public index gives toktier's name to another project."""
    return BackendUnavailable(
        f"{what} the distribution {distribution}, which is not installed",
        details={"distribution": distribution, "extra": extra},
        remedy=f"pip install {requirement}",
    )
