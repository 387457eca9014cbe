"""Dense attention in fp64, independent of the library: what its results are compared with."""

import torch


def for_every_pair(function, with_score=False):
    """`function` of one (score,) b, h, q, k, mapped over [B, H, Sq, Sk]; as FlexAttention defines what it means."""
    first = (0,) if with_score else ()
    for axis in reversed(range(4)):
        function = torch.vmap(function, in_dims=first + tuple(0 if place == axis else None for place in range(4)))
    return function


def dense_mask(mask_mod, batch, heads, q_len, kv_len):
    """The truth of `mask_mod` for every pair, bool [batch, heads, q_len, kv_len]."""
    return for_every_pair(mask_mod)(*(torch.arange(size) for size in (batch, heads, q_len, kv_len)))


def attention(query, key, value, visible=None, score_mod=None, scale=None, sink=None):
    """(out [B, S, H, Dv], lse [B, H, S]) in fp64 of [B, S, H, D] tensors; hidden pairs are left out, not made small."""
    query, key, value = (tensor.double().transpose(1, 2) for tensor in (query, key, value))
    group = query.shape[1] // key.shape[1]
    key, value = (tensor.repeat_interleave(group, dim=1) for tensor in (key, value))
    batch, heads, q_len, dim = query.shape
    kv_len = key.shape[2]
    score = query @ key.transpose(2, 3) * (dim ** -0.5 if scale is None else scale)
    if score_mod is not None:
        indices = (torch.arange(size) for size in (batch, heads, q_len, kv_len))
        score = for_every_pair(score_mod, with_score=True)(score, *indices)
    if visible is not None:
        score = torch.where(visible, score, -torch.inf)
    if sink is not None:
        score = torch.cat([score, sink.double().reshape(1, heads, 1, 1).expand(batch, heads, q_len, 1)], dim=3)
        value = torch.cat([value, value.new_zeros(batch, heads, 1, value.shape[3])], dim=2)
    lse = torch.logsumexp(score, dim=3)
    seen = torch.isfinite(lse)
    weights = torch.where(seen[..., None], torch.exp(score - torch.where(seen, lse, 0.0)[..., None]), 0.0)
    return (weights @ value).transpose(1, 2), lse
