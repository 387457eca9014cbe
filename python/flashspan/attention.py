"""flashspan.attention: attention of torch tensors, NumPy arrays and what speaks DLPack."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, TypeVar, overload

from . import array_calls, calls
from .config import tile_of
from .errors import BadArgumentError
from .mask import Mask, as_mask
from .score import Score, as_score
from .tensors import from_dlpack, is_numpy, is_torch

# A torch tensor, a NumPy array, or what else speaks DLPack.
Array = TypeVar("Array")
MaskLike = Mask | str | Callable[..., Any]
ScoreLike = Score | str | Callable[..., Any]


@overload
def attention(query: Array, key: Array, value: Array, mask: MaskLike | None = None, score: ScoreLike | None = None,
              scale: float | None = None, layout: str = "bshd", return_lse: Literal[False] = False,
              deterministic: bool = False, sink: Any = None, config: Any = None,
              backward_config: Any = None) -> Array: ...


@overload
def attention(query: Array, key: Array, value: Array, mask: MaskLike | None = None, score: ScoreLike | None = None,
              scale: float | None = None, layout: str = "bshd", *, return_lse: Literal[True], deterministic: bool = False,
              sink: Any = None, config: Any = None, backward_config: Any = None) -> tuple[Array, Array]: ...


@overload
def attention(query: Array, key: Array, value: Array, mask: MaskLike | None = None, score: ScoreLike | None = None,
              scale: float | None = None, layout: str = "bshd", return_lse: bool = False, deterministic: bool = False,
              sink: Any = None, config: Any = None, backward_config: Any = None) -> Array | tuple[Array, Array]: ...


def attention(query: Any, key: Any, value: Any, mask: MaskLike | None = None, score: ScoreLike | None = None,
              scale: float | None = None, layout: str = "bshd", return_lse: bool = False, deterministic: bool = False,
              sink: Any = None, config: Any = None, backward_config: Any = None) -> Any:
    """Attention under a mask: ``softmax over visible keys of score(scale * query . key)``, applied to `value`.

    Args:
        query: [B, Sq, Hq, D], or with ``layout="bhsd"`` [B, Hq, Sq, D].
        key: [B, Sk, Hkv, D]; Hq is a multiple of Hkv (grouped-query attention).
        value: [B, Sk, Hkv, Dv]. All three have one dtype and are on one device: float16 or bfloat16 on CUDA, with D and Dv
            from 16 to 256 in steps of 8; float32 too on the CPU, from 1 to 256. Strides are free; a tensor whose last axis
            is not contiguous is copied, no other is.
        mask: a Mask, or what makes one: a name, an expression, a callable ``(b, h, q, k)``. None: every key is visible.
        score: a Score, or what makes one: an expression, a callable ``(score, b, h, q, k)``. None: scores as they are.
        scale: a number; None is 1 / sqrt(D). One that changes or is learned is a score: ``Score("score * gain[0]", gain=gain)``.
        layout: the order of the axes, ``"bshd"`` or ``"bhsd"``.
        return_lse: also return the natural logarithm of each row's sum of exponentials, float32 [B, Hq, Sq].
        deterministic: the gradients have the same bits every time (the forward always has). Also on if
            ``torch.use_deterministic_algorithms`` is.
        sink: [Hq]: for each head one more logit in the softmax of every row, whose value is zero.
        config: the sizes of the forward's kernel, in place of what the library chooses: a `Config`, a ``triton.Config``, or what
            makes a `Config`. One that the kernel cannot have is a BadArgumentError that lists those it can.
        backward_config: the same of the backward's kernel, which has other sizes.

    Returns:
        out [.., Dv] in the order and dtype of `query`, or (out, lse). Torch tensors take part in autograd (query, key, value,
        sink and what the score looks up, in reverse mode; lse is differentiable) and are computed on the current stream; NumPy arrays are
        computed on the CPU; others that speak DLPack come back as their own kind where their library takes DLPack, else as torch tensors.

    A row that sees nothing gives out = 0 and lse = -inf (with a sink, the sink) and takes no gradient. What a mask hides, NaN
    included, never reaches a result. A Mask or Score made once is cheaper than a callable in every call.

    Raises:
        BadArgumentError, UnsupportedError: before anything is launched; the message names the argument.
        NoDeviceError, MissingComponentError, CompileError: see `flashspan.doctor`.
    """
    calls.check_layout(layout)
    out, lse = _attention(query, key, value, as_mask(mask), as_score(score), scale, layout, deterministic, sink, return_lse,
                          tile_of(config), tile_of(backward_config))
    return (out, lse) if return_lse else out


def _attention(query: Any, key: Any, value: Any, mask: Mask | None, score: Score | None, scale: float | None, layout: str,
               deterministic: bool, sink: Any, return_lse: bool, tile: tuple[int, ...],
               backward_tile: tuple[int, ...]) -> tuple[Any, Any]:
    """(out, lse), by the kind of `query`. Without `return_lse`, lse may be None."""
    if is_torch(query):
        from . import torch_ops

        return torch_ops.attention(query, key, value, mask, score, scale, layout, deterministic, sink, return_lse,
                                   tile, backward_tile)
    if is_numpy(query):
        return array_calls.attention(query, key, value, mask, score, scale, layout, sink, tile)
    if not hasattr(query, "__dlpack__"):
        raise BadArgumentError("query", type(query).__name__, "a torch tensor, a NumPy array or another with __dlpack__")
    out, lse = _attention(from_dlpack(query, "query"), from_dlpack(key, "key"), from_dlpack(value, "value"), mask, score,
                          scale, layout, deterministic, None if sink is None else from_dlpack(sink, "sink"), return_lse,
                          tile, backward_tile)
    namespace = query.__array_namespace__() if hasattr(query, "__array_namespace__") else None
    take = getattr(namespace, "from_dlpack", lambda tensor: tensor)
    return take(out), lse if lse is None else take(lse)
