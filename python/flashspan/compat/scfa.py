"""The functions of epfml/dynamic-sparse-flash-attention (SCFA, arXiv 2306.01160), without its device-to-host copy.

Queries and keys are sorted (hash) or compacted (qk) for each batch entry and head, attention skips what is empty then, and its
rows go back to their places. Buffers are as long as the sequence, so that no length has to be known on the host. A model whose
queries do not see themselves takes ``masks.scfa_hash(..., strict=True)``.
"""

from __future__ import annotations

import torch

from .. import masks
from ..attention import attention
from ..errors import BadArgumentError
from .arguments import check_rank
from .row_order import RowOrder

_NO_QUERY, _NO_KEY = -1, 10**9  # positions of padding: no query is at or behind such a key


def dynamic_sparse_attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, q_idx: torch.Tensor, k_idx: torch.Tensor,
                             sm_scale: float | None = None, sparsity_mode: str = "hash") -> torch.Tensor:
    """Causal attention within buckets (`sparsity_mode` "hash") or of what is kept ("qk").

    Args:
        q: [B, Nq, H, D]. k: [B, Nk, Hkv, D]. v: [B, Nk, Hkv, Dv]; H is a multiple of Hkv.
        q_idx: [B, Nq, H], k_idx: [B, Nk, Hkv]: int32 buckets for "hash", float32 flags 0 and 1 for "qk".
        sm_scale: None is 1 / sqrt(D).

    Returns:
        [B, Nq, H, Dv]; zero for dropped queries and those that see nothing.

    Raises:
        BadArgumentError: another mode, an index of another dtype or shape.
    """
    modes = {"hash": hash_sparse_attention, "qk": qk_sparse_attention}
    if sparsity_mode not in modes:
        raise BadArgumentError("sparsity_mode", repr(sparsity_mode), "'hash' or 'qk'")
    return modes[sparsity_mode](q, k, v, q_idx, k_idx, sm_scale)


def hash_sparse_attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, q_hash: torch.Tensor, k_hash: torch.Tensor,
                          sm_scale: float | None = None) -> torch.Tensor:
    """A query at t sees the keys up to t whose bucket is its own. Arguments as of `dynamic_sparse_attention`."""
    _check(q, k, v, torch.int32, q_hash=(q_hash, q), k_hash=(k_hash, k))
    q_hash, q_index = _heads_first(q_hash).contiguous().sort(dim=2, stable=True)
    k_hash, k_index = _heads_first(k_hash).contiguous().sort(dim=2, stable=True)
    of_queries, of_keys = RowOrder(q_index), RowOrder(k_index)
    out = hash_sparse_attention_kernel(of_queries.ordered(q), of_keys.ordered(k), of_keys.ordered(v), q_index.int(),
                                       k_index.int(), q_hash, k_hash, sm_scale=sm_scale)
    return of_queries.restored(out)


def qk_sparse_attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, q_keep: torch.Tensor, k_keep: torch.Tensor,
                        sm_scale: float | None = None) -> torch.Tensor:
    """A kept query at t sees the kept keys up to t. Arguments as of `dynamic_sparse_attention`."""
    _check(q, k, v, torch.float32, q_keep=(q_keep, q), k_keep=(k_keep, k))
    q_index, q_counts = _kept_first(q_keep)
    k_index, k_counts = _kept_first(k_keep)
    of_queries, of_keys = RowOrder(_heads_first(q_index)), RowOrder(_heads_first(k_index))
    q_idx, k_idx = pad_index(q_index, q_counts, _NO_QUERY), pad_index(k_index, k_counts, _NO_KEY)
    out = qk_sparse_attention_kernel(of_queries.ordered(q), of_keys.ordered(k), of_keys.ordered(v), _heads_first(q_idx),
                                     _heads_first(k_idx), sm_scale)
    return of_queries.restored(out)


def hash_sparse_attention_kernel(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, q_idx: torch.Tensor, k_idx: torch.Tensor,
                                 q_hash: torch.Tensor, k_hash: torch.Tensor, sm_scale: float | None = None) -> torch.Tensor:
    """`hash_sparse_attention` of `q`, `k` and `v` [B, H, N, D] in any order: `q_idx`, `k_idx` [B, H, N] are the original
    positions and `q_hash`, `k_hash` the buckets of their rows. `sm_scale`: None is 1 / sqrt(D)."""
    return attention(q, k, v, mask=masks.scfa_hash(q_idx, k_idx, q_hash, k_hash), scale=sm_scale, layout="bhsd")


def qk_sparse_attention_kernel(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, q_idx: torch.Tensor, k_idx: torch.Tensor,
                               sm_scale: float | None = None) -> torch.Tensor:
    """`qk_sparse_attention` of `q`, `k` and `v` [B, H, N, D] in any order: `q_idx`, `k_idx` [B, H, N] are the original
    positions of their rows; -1 is a query and 10^9 a key that is padding. `sm_scale`: None is 1 / sqrt(D)."""
    return attention(q, k, v, mask=masks.scfa_index(q_idx, k_idx), scale=sm_scale, layout="bhsd")


def compact(keep_tensor: torch.Tensor, x: torch.Tensor,
            index: torch.Tensor | None = None) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
    """Rows of `x` [B, T, H, D] with the kept ones (`keep_tensor` [B, T, H] is 1) of each head first, in their order.

    Returns:
        (rows [B, T, H, D], index int64 [B, T, H] of where each came from, kept rows [B, H]). The original shortens T to the
        longest head's count, for which the host has to wait; here T stays. With `index` (of an earlier call) that order is
        taken, and the third is None.
    """
    counts = None
    if index is None:
        index, counts = _kept_first(keep_tensor)
    return x.gather(1, index[..., None].expand(-1, -1, -1, x.shape[3])), index, counts


def pad_index(index: torch.Tensor, indices_per_head: torch.Tensor, pad_idx: int = -1) -> torch.Tensor:
    """`index` [B, T, H] in int32, with `pad_idx` from the entry `indices_per_head` [B, H] of each head on."""
    entry = torch.arange(index.shape[1], device=index.device)[None, :, None]
    return torch.where(entry < indices_per_head[:, None, :], index, pad_idx).int()


def _heads_first(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.transpose(1, 2)


def _kept_first(keep: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """(index [B, T, H] of the rows of each head, those that are kept first and in their order; how many are kept [B, H])."""
    return keep.sort(dim=1, descending=True, stable=True).indices, keep.sum(dim=1)


def _check(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, dtype: torch.dtype,
           **indices: tuple[torch.Tensor, torch.Tensor]) -> None:
    check_rank(4, "[B, N, H, D]", q=q, k=k, v=v)
    for name, (index, of) in indices.items():
        if index.dtype != dtype or index.shape != of.shape[:3]:
            raise BadArgumentError(name, f"{index.dtype} {list(index.shape)}", f"{dtype} {list(of.shape[:3])}")
