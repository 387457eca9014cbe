"""Changes of scores that the drop-ins share."""

from __future__ import annotations

from ..score import Score
from ..remembered import remembered


def softcap_term(softcap: float | None) -> tuple[str, dict[str, float]]:
    """``softcap * tanh(score / softcap)`` as a text and its numbers; 0 and None leave the score as it is."""
    if not softcap or softcap < 0:
        return "score", {}
    return "softcap * tanh(score / softcap)", {"softcap": float(softcap)}


@remembered
def softcapped(softcap: float | None) -> Score | None:
    """The soft cap alone; None if there is none."""
    text, numbers = softcap_term(softcap)
    return Score(text, **numbers) if numbers else None
