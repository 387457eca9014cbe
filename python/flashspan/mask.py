"""Mask: which keys each query may see."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

from . import _core
from .errors import BadArgumentError
from .program import Node, Program
from .remembered import remembered

if TYPE_CHECKING:
    from .explanation import Explanation
    from .picture import Picture

_set_of_values = itertools.count(1)


class Mask(Program):
    """Which keys each query may see.

    Args:
        program: one of

            * a name of the catalogue (``"causal"``, ``"window(left=1023, right=0)"``; see `flashspan.masks`);
            * an expression of the mask language (docs/mask-language.md) over ``b, h, q, k``, ``q_len``, ``kv_len`` and
              the names in `data`: ``"(q >= k) & (doc[q] == doc[k])"``;
            * a callable ``mask(b, h, q, k)`` that returns a truth value, FlexAttention's ``mask_mod``. It is run once,
              with traced values; tensors that it captures are looked up, and may change their values later. Zero-dim
              tensors are numbers that may change; Python numbers are part of the program.
        data: tensors and numbers by name. An expression uses them by name; a callable gets them by keyword, traced, so
            that ``doc[q]`` works for NumPy arrays as well. Tensors of int32, float32, float16 and bfloat16 are read where
            they are; other integers and float64 through a copy in 32 bits made for every call.

    Another value of a number or tensor compiles nothing. Masks combine with ``&``, ``|`` and ``~``; ``and``, ``or`` and ``not``
    are refused.

    Raises:
        BadExpressionError: the text does not parse; the message marks the column.
        TraceError: the callable does what cannot be traced; the message names its line.
        BadArgumentError: a tensor or number that is missing, unused or of a wrong kind.
    """

    _parser = _core.Mask

    def __and__(self, other: Mask) -> Mask:
        return self._combined("and", other)

    def __or__(self, other: Mask) -> Mask:
        return self._combined("or", other)

    def __invert__(self) -> Mask:
        return self.inverse()

    def _combined(self, sign: str, other: Mask) -> Mask:
        if not isinstance(other, Mask):
            return NotImplemented
        return Mask._of({sign: [self._node, other._node]}, self.tensors + other.tensors)

    def inverse(self) -> Mask:
        """``~mask``, for functions of torch.compile, whose ``~`` takes tensors and numbers alone."""
        return Mask._of({"not": self._node}, self.tensors)

    def fixed(self) -> Mask:
        """The same mask, with the promise that the values in its tensors do not change any more.

        Calls of one size then plan their tiles once for a thread and stream, forward and backward, unless they need more than 32 MB
        of workspace: worth it where the layers of a model share a mask of a step's documents. Tensors of other dtypes than the library reads are converted once, here.
        """
        mask = self.converted()
        if mask.tensors:
            mask.values = next(_set_of_values)
        return mask

    def __setstate__(self, state: dict[str, Any]) -> None:
        """A copy's tensors are others, and so are numbers of sets of values in the process that it may come from."""
        self.__dict__.update(state)
        if self.values:
            self.values = next(_set_of_values)

    def explain(self, q_len: int, kv_len: int | None = None, **sizes: Any) -> Explanation:
        """The path from this mask to its kernels, with reasons: see `flashspan.explanation.explain`."""
        from .explanation import explain

        return explain(self, q_len, kv_len, **sizes)

    def density(self, q_len: int, kv_len: int | None = None, **sizes: Any) -> float:
        """Share of the (query, key) pairs that are visible, over all batch entries and heads the mask tells apart.

        Takes the sizes that `explain` takes.
        """
        return self.explain(q_len, kv_len, **sizes).density

    def picture(self, q_len: int, kv_len: int | None = None, **options: Any) -> Picture:
        """The mask drawn, queries downwards and keys to the right: see `flashspan.picture.draw`."""
        from .picture import draw

        return draw(self, q_len, kv_len, **options)


def builder(name: str, tensors: tuple, options: tuple = (), **more: Any) -> Mask:
    """A mask that the extension's builder `name` makes once a call's sizes are known."""
    node: Node = {"builder": name, "tensors": len(tensors), "options": options, **more}
    return Mask._of(node, tensors)


@remembered
def _of_text(text: str) -> Mask:
    return Mask(text)


def as_mask(mask: Any) -> Mask | None:
    """What `flashspan.attention` takes as its mask, as a Mask."""
    if mask is None or isinstance(mask, Mask):
        return mask
    if isinstance(mask, str):
        return _of_text(mask)
    if callable(mask):
        return Mask(mask)
    raise BadArgumentError("mask", type(mask).__name__, "a Mask, text or a callable (b, h, q, k)")
