"""Score: how the scaled product of a query and a key is modified before the softmax."""

from __future__ import annotations

from typing import Any

from . import _core
from .errors import BadArgumentError
from .program import Program
from .remembered import remembered


class Score(Program):
    """How a score is modified: soft cap, ALiBi, relative bias, ...

    Args:
        program: an expression of the mask language that may use ``score`` (scale times the product of query and key):
            ``"30 * tanh(score / 30)"``; or a callable ``score_mod(score, b, h, q, k)`` that returns a number,
            FlexAttention's ``score_mod``, traced as a Mask's is.
        data: tensors and numbers by name, as for Mask.

    A score hides nothing: that is the mask's part. Raises as Mask does.
    """

    _with_score = True
    _parser = _core.Score


@remembered
def _of_text(text: str) -> Score:
    return Score(text)


def as_score(score: Any) -> Score | None:
    """What `flashspan.attention` takes as its score, as a Score."""
    if score is None or isinstance(score, Score):
        return score
    if isinstance(score, str):
        return _of_text(score)
    if callable(score):
        return Score(score)
    raise BadArgumentError("score", type(score).__name__, "a Score, text or a callable (score, b, h, q, k)")
