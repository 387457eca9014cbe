"""torch's FlexAttention: flex_attention and create_block_mask. torch.compile is not needed for speed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn.attention import flex_attention as torch_flex

from .. import masks
from ..attention import attention
from ..errors import BadArgumentError, UnsupportedError
from ..mask import Mask
from ..score import Score
from .arguments import check_rank

_NO_BLOCKS = 2**30  # torch's block size of a mask that hides nothing, for calls of any length


@dataclass(frozen=True)
class BlockMask:
    """A traced mask_mod and the sizes it is for. `mask` has density(), explain() and picture()."""

    mask: Mask
    mask_mod: Callable[..., Any]
    shape: tuple[int, int, int, int]
    BLOCK_SIZE: tuple[int, int]


def create_block_mask(mask_mod: Callable[..., Any], B: int | None, H: int | None, Q_LEN: int, KV_LEN: int,
                      device: Any = None, BLOCK_SIZE: int | tuple[int, int] = 128, _compile: bool = False) -> BlockMask:
    """The mask of ``mask_mod(b, h, q, k)``, traced once: no block is looked at here, and tensors that it captures may change
    their values afterwards.

    Args:
        B, H: batch and query heads of the calls it is for; None: any number.
        Q_LEN, KV_LEN: their lengths, exactly.
        device, _compile: not needed; the mask is where the tensors are that `mask_mod` captures.
        BLOCK_SIZE: recorded only: kernels choose their own tiles.

    Raises:
        TraceError: `mask_mod` does what cannot be traced; the message names its line.
    """
    del device, _compile
    blocks = (BLOCK_SIZE, BLOCK_SIZE) if isinstance(BLOCK_SIZE, int) else tuple(BLOCK_SIZE)
    return BlockMask(Mask(mask_mod), mask_mod, (B or 1, H or 1, Q_LEN, KV_LEN), (blocks[0], blocks[1]))


def flex_attention(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor,
                   score_mod: Callable[..., Any] | Score | None = None,
                   block_mask: BlockMask | torch_flex.BlockMask | None = None, scale: float | None = None,
                   enable_gqa: bool = False, return_lse: bool = False, kernel_options: Any = None, *,
                   return_aux: Any = None) -> Any:
    """Attention under a score_mod and a block mask.

    Args:
        query: [B, Hq, L, D]. key: [B, Hkv, S, D]. value: [B, Hkv, S, Dv]. Dtypes and head dims as `flashspan.attention`. Keys
            and values of batch 1 serve every batch entry, if the block mask has the query's batch.
        score_mod: (score, b, h, q, k), traced in every call, or a Score, which is made once; what it captures takes gradients. It
            may not return -inf: hiding is the mask's part.
        block_mask: of `create_block_mask`, here or in torch. Of torch's, both are applied: its lists of full blocks, and its
            mask_mod, which is traced in every call, inside its other lists. Ours is faster: it needs no lists.
        scale: None is 1 / sqrt(D).
        enable_gqa: Hq may be a multiple of Hkv.
        return_lse: return (out, lse); lse is float32 [B, Hq, L], and differentiable.
        kernel_options: not needed: it tunes torch's kernels.
        return_aux: torch's AuxRequest, for (out, AuxOutput); lse only.

    Raises:
        BadArgumentError: shapes that do not fit one another or the block mask.
        UnsupportedError: max_scores.
        TraceError: a score_mod or mask_mod that cannot be traced.
    """
    del kernel_options
    check_rank(4, "[B, H, S, D]", query=query, key=key, value=value)
    if return_lse and return_aux is not None:
        raise BadArgumentError("return_lse", "return_aux beside it", "one of the two")
    if getattr(return_aux, "max_scores", False):
        raise UnsupportedError("return_aux", "max_scores", "AuxRequest(lse=True)")
    if query.shape[1] != key.shape[1] and not enable_gqa:
        raise BadArgumentError("enable_gqa", f"False for {query.shape[1]} query heads and {key.shape[1]} key heads", "True")
    if block_mask is not None:
        _check_sizes(block_mask, query, key)
        if key.shape[0] == 1:
            key, value = (tensor.expand(query.shape[0], -1, -1, -1) for tensor in (key, value))
    mask = None if block_mask is None else _mask_of(block_mask)
    out, lse = attention(query, key, value, mask=mask, score=score_mod, scale=scale, layout="bhsd", return_lse=True)
    if return_aux is not None:
        return out, torch_flex.AuxOutput(lse=lse if return_aux.lse else None)
    return (out, lse) if return_lse else out


def _check_sizes(block_mask: BlockMask | torch_flex.BlockMask, query: torch.Tensor, key: torch.Tensor) -> None:
    batch, heads, q_len, kv_len = block_mask.shape
    wanted = (query.shape[0], query.shape[1], query.shape[2], key.shape[2])
    any_length = tuple(block_mask.BLOCK_SIZE) == (_NO_BLOCKS, _NO_BLOCKS)
    fits = batch in (1, wanted[0]) and heads in (1, wanted[1]) and (any_length or (q_len, kv_len) == wanted[2:])
    if not fits:
        raise BadArgumentError("block_mask", f"one for (B, H, Q_LEN, KV_LEN) = {tuple(block_mask.shape)}",
                               f"one for {wanted}, where B and H may be None")
    if key.shape[0] not in (query.shape[0], 1) or (key.shape[0] != query.shape[0] and batch != query.shape[0]):
        raise BadArgumentError("key", f"batch {key.shape[0]}", f"batch {query.shape[0]}, or 1 with a block mask of that batch")


def _mask_of(block_mask: BlockMask | torch_flex.BlockMask) -> Mask | None:
    if isinstance(block_mask, BlockMask):
        return block_mask.mask
    predicate = None if block_mask.mask_mod is torch_flex.noop_mask else Mask(block_mask.mask_mod)
    if tuple(block_mask.BLOCK_SIZE) == (_NO_BLOCKS, _NO_BLOCKS):
        return predicate
    # The lists are read too: from_kv_blocks() makes masks whose lists hide more than their mask_mod.
    listed = masks.block_list(block_mask.kv_num_blocks, block_mask.kv_indices, *block_mask.BLOCK_SIZE, predicate=predicate)
    if block_mask.full_kv_num_blocks is None:
        return listed
    return listed | masks.block_list(block_mask.full_kv_num_blocks, block_mask.full_kv_indices, *block_mask.BLOCK_SIZE)
