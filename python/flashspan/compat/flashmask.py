"""Paddle's flashmask_attention, on torch tensors."""

from __future__ import annotations

from typing import Any

import torch

from .. import masks
from ..attention import attention
from ..errors import BadArgumentError
from ..mask import Mask
from .arguments import check_rank, refuse_unless_default
from ..remembered import remembered

_BLOCK = 128  # rows and columns of a tile of `block_mask`


def flashmask_attention(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor,
                        startend_row_indices: torch.Tensor | None = None, *, dropout: float = 0.0, causal: bool = False,
                        window_size: int | tuple[int, int] | None = None, return_softmax_lse: bool = False,
                        return_seed_offset: bool = False, fixed_seed_offset: Any = None, rng_name: str = "",
                        training: bool = True, name: str | None = None, softmax_scale: float | None = None,
                        block_mask: torch.Tensor | None = None, learnable_sink: torch.Tensor | None = None,
                        group: Any = None) -> Any:
    """Attention under column intervals: for each key, the rows of queries that do *not* see it.

    Args:
        query: [B, Sq, Hq, D]. key: [B, Sk, Hkv, D]. value: [B, Sk, Hkv, Dv]. Dtypes and head dims as `flashspan.attention`.
        startend_row_indices: int32 [B, 1 | Hkv | Hq, Sk, n]. Intervals of rows, the start masked and the end not, over the
            whole column: with `causal` n = 1 [start, Sq) or n = 2 [start, end); without it n = 2 [lower start, Sq) and
            [0, upper end) or n = 4 [lower start, lower end) and [upper start, upper end). None masks nothing more.
        causal: query q sees keys up to q + Sk - Sq, as in FlashMask V3 and V4; rows of intervals are not shifted.
        window_size: w or (left, right), without `startend_row_indices` only: q - left <= k <= q + right; with `causal` the
            right bound is the causal one. A window of w has w keys before the query and the query itself.
        return_softmax_lse: return [out, lse]; lse is float32 [B, Hq, Sq], and differentiable.
        training: without it there is no dropout, whatever `dropout`.
        softmax_scale: None is 1 / sqrt(D).
        block_mask: int32 [B, 1 | Hkv | Hq, ceil(Sq / 128), ceil(Sk / 128)], beside `startend_row_indices` only: tiles of
            128 x 128, of which a 0 hides one.
        learnable_sink: [Hq]: one more logit for each head.
        dropout, return_seed_offset, fixed_seed_offset, rng_name, name, group: their defaults only.

    Returns:
        out [B, Sq, Hq, Dv], or [out, lse].

    Raises:
        BadArgumentError: an index tensor of another dtype or shape; a window beside indices; a negative window.
        UnsupportedError: dropout and the other arguments that take their defaults only.
    """
    refuse_unless_default(dropout=(dropout if training else 0.0, 0.0), return_seed_offset=(return_seed_offset, False),
                          fixed_seed_offset=(fixed_seed_offset, None), rng_name=(rng_name, ""), name=(name, None),
                          group=(group, None))
    check_rank(4, "[B, S, H, D]", query=query, key=key, value=value)
    if startend_row_indices is None:
        if block_mask is not None:
            raise BadArgumentError("block_mask", "no startend_row_indices", "both")
        mask = _without_indices(bool(causal), _window(window_size))
    else:
        mask = _of_indices(query, key, startend_row_indices, causal, window_size, block_mask)
    out, lse = attention(query, key, value, mask=mask, scale=softmax_scale, return_lse=True, sink=learnable_sink)
    return [out, lse] if return_softmax_lse else out


def _window(window_size: int | tuple[int, int] | None) -> tuple[int, int] | None:
    if window_size is None:
        return None
    left, right = (window_size, window_size) if isinstance(window_size, int) else window_size
    if left < 0 or right < 0:
        raise BadArgumentError("window_size", repr(window_size), "numbers of keys from 0, or None")
    return left, right


@remembered
def _without_indices(causal: bool, window: tuple[int, int] | None) -> Mask | None:
    """FlashMask's window counts rows of the call, unlike `masks.window`: it is not shifted where the lengths differ."""
    if window is None:
        return masks.causal() if causal else None
    left = Mask("q - k <= left", left=window[0])
    return left & (masks.causal() if causal else Mask("k - q <= right", right=window[1]))


def _of_indices(query: torch.Tensor, key: torch.Tensor, indices: torch.Tensor, causal: bool, window_size: Any,
                block_mask: torch.Tensor | None) -> Mask:
    if window_size is not None:
        raise BadArgumentError("window_size", f"{window_size!r} beside startend_row_indices", "one of the two")
    q_len, kv_len = query.shape[1], key.shape[1]
    bounds = (1, 2) if causal else (2, 4)
    _check_indices("startend_row_indices", indices, query, key, (kv_len,), bounds)
    mask = masks.flashmask(indices, causal)
    if block_mask is None:
        return mask
    blocks = (-(-q_len // _BLOCK), -(-kv_len // _BLOCK))
    _check_indices("block_mask", block_mask, query, key, blocks[:1], blocks[1:])
    kept = block_mask != 0
    first = torch.argsort(kept.int(), dim=-1, descending=True, stable=True)
    return masks.block_list(kept.sum(-1, dtype=torch.int32), first.int(), _BLOCK, _BLOCK, predicate=mask)


def _check_indices(name: str, tensor: torch.Tensor, query: torch.Tensor, key: torch.Tensor, rows: tuple[int, ...],
                   last: tuple[int, ...]) -> None:
    """[B, 1 | Hkv | Hq, *rows, one of `last`] of int32; a batch of 1 is not shared out, as in Paddle."""
    if tensor.dtype != torch.int32:
        raise BadArgumentError(name, str(tensor.dtype), "torch.int32")
    heads = sorted({1, key.shape[2], query.shape[2]})
    fits = (tensor.dim() == 4 and tensor.shape[0] == query.shape[0] and tensor.shape[1] in heads
            and tuple(tensor.shape[2:3]) == rows and tensor.shape[3] in last)
    if not fits:
        raise BadArgumentError(name, f"shape {list(tensor.shape)}",
                               f"[{query.shape[0]}, one of {heads}, {rows[0]}, one of {list(last)}]")
