"""Attention of a GPT's layers by pattern and engine, from a step's documents and a seed that all engines share.

Patterns: `documents` (causal inside packed documents, FlashMask's form), `hash` (SCFA's buckets by random rotations, causal
inside a bucket) and `qk` (SCFA's dropping of random queries and keys). Engines: `flashspan` through its masks and drop-ins, `flex` (torch's
FlexAttention, compiled) over the same sorted or compacted tokens, and `sdpa`, dense causal attention: the speed that
sparsity is measured by, and another function.
"""

from functools import cache

import torch
from torch.nn.attention import flex_attention as torch_flex

import flashspan
from flashspan.compat import scfa
from flashspan.compat.row_order import RowOrder

PATTERNS = ("documents", "hash", "qk")
ENGINES = ("flashspan", "flex", "sdpa")


class Settings:
    """What is common to a run: number of buckets, share of dropped tokens."""

    def __init__(self, buckets=16, dropped=0.5):
        self.buckets, self.dropped = buckets, dropped


def attention_of_layers(pattern, engine, doc, step, settings):
    """For one step: a function from the layer's number to its attention of [B, S, H, D] tensors."""
    if engine == "sdpa":
        return lambda layer: _dense
    if pattern == "documents":
        attend = _DOCUMENTS[engine](doc)
        return lambda layer: attend
    sparse = {"hash": _hash_sparse, "qk": _qk_sparse}[pattern]
    return lambda layer: lambda q, k, v: sparse(engine, q, k, v, 1000 * step + layer, settings)


def _dense(q, k, v):
    out = torch.nn.functional.scaled_dot_product_attention(*(t.transpose(1, 2) for t in (q, k, v)), is_causal=True)
    return out.transpose(1, 2)


# -- documents


def _documents_of_flashspan(doc):
    """FlashMask's causal document mask, which the layers share: for each key, the row where its document ends."""
    rows = torch.searchsorted(doc, doc, right=True).int()[:, None, :, None]
    mask = flashspan.masks.flashmask(rows, causal=True).fixed()
    return lambda q, k, v: flashspan.attention(q, k, v, mask=mask)


def _documents_of_flex(doc):
    def mask_mod(b, h, q, k):
        return (q >= k) & (doc[b, q] == doc[b, k])

    block_mask = _block_mask(mask_mod, doc.shape[0], None, doc.shape[1], doc.device)
    return lambda q, k, v: _flex(*(t.transpose(1, 2) for t in (q, k, v)), block_mask).transpose(1, 2)


_DOCUMENTS = {"flashspan": _documents_of_flashspan, "flex": _documents_of_flex}


# -- SCFA


def _hash_sparse(engine, q, k, v, seed, settings):
    """Buckets by the largest of random projections and their negatives, of queries and of normalised keys. Of two engines they
    are the same in the first layer of the first step alone: a rounding of one layer moves near ties in the next."""
    random = torch.Generator(device=q.device).manual_seed(seed)
    rotation = torch.randn((q.shape[2], q.shape[3], settings.buckets // 2), generator=random, device=q.device)
    q_hash, k_hash = (_buckets(t.detach().float(), rotation) for t in (q, torch.nn.functional.normalize(k, dim=-1)))
    if engine == "flashspan":
        return scfa.hash_sparse_attention(q, k, v, q_hash, k_hash)
    q_hash, q_idx = q_hash.transpose(1, 2).contiguous().sort(dim=2, stable=True)
    k_hash, k_idx = k_hash.transpose(1, 2).contiguous().sort(dim=2, stable=True)

    def mask_mod(b, h, q, k):
        return (q_idx[b, h, q] >= k_idx[b, h, k]) & (q_hash[b, h, q] == k_hash[b, h, k])

    return _flex_in_order(mask_mod, RowOrder(q_idx), RowOrder(k_idx), q, k, v)


def _buckets(rows, rotation):
    projected = torch.einsum("bshd,hdr->bshr", rows, rotation)
    return torch.cat([projected, -projected], dim=-1).argmax(-1).int()


def _qk_sparse(engine, q, k, v, seed, settings):
    random = torch.Generator(device=q.device).manual_seed(seed)
    q_keep, k_keep = ((torch.rand(q.shape[:3], generator=random, device=q.device) >= settings.dropped).float() for _ in "qk")
    if engine == "flashspan":
        return scfa.qk_sparse_attention(q, k, v, q_keep, k_keep)
    (q_index, q_idx), (k_index, k_idx) = _kept(q_keep, -1), _kept(k_keep, 10**9)

    def mask_mod(b, h, q, k):
        return q_idx[b, q, h] >= k_idx[b, k, h]

    return _flex_in_order(mask_mod, RowOrder(q_index.transpose(1, 2)), RowOrder(k_index.transpose(1, 2)), q, k, v)


def _kept(keep, padding):
    """(order of rows, kept ones first; their positions and `padding`), both [B, S, H]."""
    index = keep.sort(dim=1, descending=True, stable=True).indices
    return index, scfa.pad_index(index, keep.sum(dim=1), padding)


def _flex_in_order(mask_mod, of_queries, of_keys, q, k, v):
    """Sorted by the same means as Flashspan's drop-in, so that attention and its block mask make the difference."""
    block_mask = _block_mask(mask_mod, q.shape[0], q.shape[2], q.shape[1], q.device)
    return of_queries.restored(_flex(of_queries.ordered(q), of_keys.ordered(k), of_keys.ordered(v), block_mask))


# -- FlexAttention. On the CPU it has no backward: there its mask is made dense, for SDPA.


@cache
def _compiled(function):
    return torch.compile(function, dynamic=False)


def _block_mask(mask_mod, batch, heads, length, device):
    if device.type == "cpu":
        return torch_flex.create_mask(mask_mod, batch, heads, length, length, device="cpu")
    return _compiled(torch_flex.create_block_mask)(mask_mod, batch, heads, length, length, device=device.type)


def _flex(q, k, v, mask):
    if q.device.type == "cpu":
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)
    return _compiled(torch_flex.flex_attention)(q, k, v, block_mask=mask)
