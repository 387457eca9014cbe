"""flash-attn's flash_attn_func and flash_attn_varlen_func (its versions 2.1 and later)."""

from __future__ import annotations

from typing import Any

import torch

from .. import masks
from ..attention import attention
from ..errors import BadArgumentError
from ..mask import Mask
from ..score import Score
from .arguments import check_rank, refuse_unless_default
from ..remembered import remembered
from .scores import softcap_term, softcapped
from .sequences import packed_mask

_Result = Any  # out, or (out, lse, None): which of them, callers know, whom a union would make tell a type checker


def flash_attn_func(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, dropout_p: float = 0.0,
                    softmax_scale: float | None = None, causal: bool = False, window_size: tuple[int, int] = (-1, -1),
                    softcap: float = 0.0, alibi_slopes: torch.Tensor | None = None, deterministic: bool = False,
                    return_attn_probs: bool = False) -> _Result:
    """Attention whose last query stands beside the last key: query i has the position p = i + Sk - Sq.

    Args:
        q: [B, Sq, Hq, D]. k: [B, Sk, Hkv, D]. v: [B, Sk, Hkv, Dv]. Dtypes and head dims as `flashspan.attention`.
        dropout_p: 0 only.
        softmax_scale: None is 1 / sqrt(D).
        causal: keys up to p.
        window_size: (left, right): p - left <= key <= p + right; a negative number does not bind, and `causal` binds the right
            by 0.
        softcap: scores become softcap * tanh(score / softcap); 0 leaves them as they are.
        alibi_slopes: [Hq] or [B, Hq]: ``-slope * abs(p - key)`` is added to the scores (after the soft cap). They take
            gradients if they require them.
        deterministic: gradients have the same bits every time.
        return_attn_probs: return (out, lse, None); lse is float32 [B, Hq, Sq], and differentiable. The third, which flash-attn
            has for tests of its dropout, is always None.

    Returns:
        out [B, Sq, Hq, Dv], or (out, lse, None).

    Raises:
        UnsupportedError: dropout.
    """
    refuse_unless_default(dropout_p=(dropout_p, 0.0))
    check_rank(4, "[B, S, H, D]", q=q, k=k, v=v)
    score = _score(softcap, _slopes_of(alibi_slopes, q.shape[0], q.shape[2]), "b", "q + kv_len - q_len - k")
    out, lse = attention(q, k, v, mask=_mask(*_bounds(causal, window_size)), score=score, scale=softmax_scale, return_lse=True,
                         deterministic=deterministic)
    return (out, lse, None) if return_attn_probs else out


def flash_attn_varlen_func(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, cu_seqlens_q: torch.Tensor,
                           cu_seqlens_k: torch.Tensor, max_seqlen_q: Any, max_seqlen_k: Any, dropout_p: float = 0.0,
                           softmax_scale: float | None = None, causal: bool = False,
                           window_size: tuple[int, int] = (-1, -1), softcap: float = 0.0,
                           alibi_slopes: torch.Tensor | None = None, deterministic: bool = False,
                           return_attn_probs: bool = False, block_table: torch.Tensor | None = None) -> _Result:
    """Attention of packed sequences, each of which sees itself alone, by the rules of `flash_attn_func` with its own lengths.

    Args:
        q: [total_q, Hq, D]. k: [total_k, Hkv, D]. v: [total_k, Hkv, Dv].
        cu_seqlens_q, cu_seqlens_k: int32 [B + 1]: where each sequence begins, and the end of the last. They stay on the
            device, and other values compile nothing. Rows behind the last sequence give out = 0 and lse = -inf.
        max_seqlen_q, max_seqlen_k: not needed; taken as flash-attn takes them.
        alibi_slopes: [Hq] or [B, Hq], for each sequence.
        block_table: None only.
        Others: as in `flash_attn_func`.

    Returns:
        out [total_q, Hq, Dv], or (out, lse, None) with lse float32 [Hq, total_q].

    Raises:
        BadArgumentError: `cu_seqlens_q` and `cu_seqlens_k` are not of one shape [B + 1].
        UnsupportedError: dropout, a block table.
    """
    del max_seqlen_q, max_seqlen_k
    refuse_unless_default(dropout_p=(dropout_p, 0.0), block_table=(block_table, None))
    check_rank(3, "[total, H, D]", q=q, k=k, v=v)
    mask, sequence, shift = packed_mask(q.shape[0], cu_seqlens_q, cu_seqlens_k, *_bounds(causal, window_size))
    slopes = _slopes_of(alibi_slopes, cu_seqlens_q.shape[0] - 1, q.shape[1])
    score = _score(softcap, slopes, "sequence[q]", "q + shift[q] - k", sequence=sequence, shift=shift)
    out, lse = attention(q[None], k[None], v[None], mask=mask, score=score, scale=softmax_scale,
                         return_lse=True, deterministic=deterministic)
    return (out[0], lse[0], None) if return_attn_probs else out[0]


def _bounds(causal: bool, window_size: tuple[int, int]) -> tuple[int | None, int | None]:
    """Keys before and behind the position; None does not bind."""
    left, right = window_size
    return left if left >= 0 else None, 0 if causal else right if right >= 0 else None


@remembered
def _mask(left: int | None, right: int | None) -> Mask | None:
    if left is None and right is None:
        return None
    return masks.causal() if left is None and right == 0 else masks.window(left, right)


def _slopes_of(slopes: torch.Tensor | None, batch: int, heads: int) -> torch.Tensor | None:
    if slopes is not None and tuple(slopes.shape) not in ((heads,), (batch, heads)):
        raise BadArgumentError("alibi_slopes", f"shape {list(slopes.shape)}", f"[{heads}] or [{batch}, {heads}]")
    return slopes


def _score(softcap: float, slopes: torch.Tensor | None, entry: str, distance: str, **places: torch.Tensor) -> Score | None:
    """The soft cap, then ALiBi. `entry` (of the batch) and `distance` are texts, which may look up `places`."""
    if slopes is None:
        return softcapped(softcap)
    capped, numbers = softcap_term(softcap)
    place = "h" if slopes.dim() == 1 else f"{entry}, h"
    text = f"{capped} - slopes[{place}] * abs({distance})"
    return Score(text, slopes=slopes, **numbers, **{name: data for name, data in places.items() if f"{name}[" in text})
