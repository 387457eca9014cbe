"""Sequences packed one behind the other, told by where each begins."""

from __future__ import annotations

import torch

from ..errors import BadArgumentError
from ..mask import Mask


def packed_mask(total: int, cu_seqlens_q: torch.Tensor, cu_seqlens_k: torch.Tensor, left: int | None,
                right: int | None) -> tuple[Mask, torch.Tensor, torch.Tensor]:
    """Each of `total` packed queries sees its own sequence's keys, from `left` before its position to `right` behind it.

    The last query of a sequence stands beside its last key. Queries behind the last sequence see nothing. Computed on the
    device, without a look at the values, so that other values compile nothing and can be replayed in a CUDA graph.

    Args:
        cu_seqlens_q, cu_seqlens_k: int32 [B + 1]: where each sequence begins, and the end of the last.
        left, right: numbers of keys; None does not bind.

    Returns:
        The mask, and for each query, int32 [total]: its sequence, and what is added to it to stand at its position among the
        packed keys.

    Raises:
        BadArgumentError: `cu_seqlens_q` and `cu_seqlens_k` are not of one shape [B + 1].
    """
    _check_starts(cu_seqlens_q=cu_seqlens_q, cu_seqlens_k=cu_seqlens_k)
    row = torch.arange(total, dtype=torch.int32, device=cu_seqlens_q.device)
    ends_q, ends_k = cu_seqlens_q[1:].contiguous(), cu_seqlens_k[1:]
    sequence = torch.searchsorted(ends_q, row, right=True).clamp(max=ends_q.shape[0] - 1)
    shift = (ends_k - ends_q)[sequence]
    first, end = cu_seqlens_k[sequence], ends_k[sequence]
    if left is not None:
        first = torch.maximum(first, row + shift - left)
    if right is not None:
        end = torch.minimum(end, row + shift + right + 1)
    end = torch.where(row < cu_seqlens_q[-1], end, first)
    return Mask("first[q] <= k < end[q]", first=first.int(), end=end.int()), sequence.int(), shift.int()


def _check_starts(**starts_of: torch.Tensor) -> None:
    shape = starts_of["cu_seqlens_q"].shape
    for name, starts in starts_of.items():
        if starts.dim() != 1 or starts.shape[0] < 2 or starts.shape != shape:
            raise BadArgumentError(name, f"shape {list(starts.shape)}", "[B + 1], one B for queries and keys")
