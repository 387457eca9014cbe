"""Ready-made masks. In a call of q_len queries and kv_len keys the last query stands beside the last key: query q has the
position p = q + kv_len - q_len. Index tensors are int32 (others are converted for every call) and on the call's device;
B, Hq, Hkv, Sq and Sk are the call's batch, heads and lengths."""

from __future__ import annotations

from typing import Any

from .errors import BadArgumentError
from .mask import Mask, builder
from .program import constant
from .tensors import as_looked_up


def full() -> Mask:
    """Every query sees every key."""
    return Mask("full")


def causal(top_left: bool = False) -> Mask:
    """Keys up to p; with `top_left`, up to q."""
    return Mask(_text("causal", top_left=int(top_left)))


def window(left: int | None = None, right: int | None = None) -> Mask:
    """p - left <= k <= p + right; None does not bind."""
    bounds = {name: bound for name, bound in (("left", left), ("right", right)) if bound is not None}
    return Mask(_text("window", **bounds))


def causal_window(left: int) -> Mask:
    """p - left <= k <= p: `left` keys before the query, and the one beside it."""
    return Mask(_text("causal_window", left=left))


def sink_window(left: int, sinks: int) -> Mask:
    """`causal_window` of `left` keys, and always the first `sinks` keys."""
    return Mask(_text("sink_window", left=left, sinks=sinks))


def global_window(left: int, right: int, globals: int) -> Mask:
    """`window` of `left` and `right` keys; the first `globals` tokens see all and are seen by all."""
    return Mask(_text("global_window", left=left, right=right, globals=globals))


def dilated_window(left: int, step: int) -> Mask:
    """Every `step`-th key of `causal_window`, back from the query's own: p - left <= k <= p."""
    return Mask(_text("dilated_window", left=left, step=step))


def chunked(size: int) -> Mask:
    """Causal within chunks of `size` positions."""
    return Mask(_text("chunked", size=size))


def prefix_lm(prefix: int) -> Mask:
    """Causal, and every query sees the first `prefix` keys."""
    return Mask(_text("prefix_lm", prefix=prefix))


def document(doc: Any) -> Mask:
    """Tokens of one document see one another. `doc` [S]: the document of each token."""
    return Mask("document", doc=doc)


def causal_document(doc: Any) -> Mask:
    """Causal within documents. `doc` [S]: the document of each token."""
    return Mask("causal_document", doc=doc)


def prefix_lm_document(doc: Any, prefix_end: Any) -> Mask:
    """Causal within documents, whose prefixes all of the document sees. `doc` [S]: the document of each token; `prefix_end`
    [S]: the index behind its document's prefix."""
    return Mask("prefix_lm_document", doc=doc, prefix_end=prefix_end)


def shared_question(doc: Any, answer: Any) -> Mask:
    """One question with several answers a document, causal: answers see the question and themselves. `doc` [S]: the document of
    each token; `answer` [S]: 0 in the question, the number of the answer elsewhere."""
    return Mask("shared_question", doc=doc, answer=answer)


def causal_blockwise(block: Any, last_block: int) -> Mask:
    """Causal within blocks; the block `last_block` sees all before it. `block` [S]: the block of each token."""
    return Mask(_text("causal_blockwise", last_block=last_block), block=block)


def flashmask(startend_row_indices: Any, causal: bool = False) -> Mask:
    """FlashMask's column intervals: for each key, the query rows that do *not* see it.

    `startend_row_indices` [B | 1, 1 | Hkv | Hq, Sk, n]; n = 1 or 2 with `causal`, 2 or 4 without; starts inclusive, ends
    exclusive, for the whole column (arXiv 2410.01359, section 4).
    """
    return builder("flashmask", _tensors(startend_row_indices=startend_row_indices), (bool(causal),))


def key_ranges(ranges: Any, offsets: Any = None) -> Mask:
    """Each query sees the union of its key ranges [lo, hi).

    `ranges` [B | 1, Hq | Hkv | 1, Sq, R, 2]; or, with `offsets` [B | 1, Hq | Hkv | 1, Sq + 1], in CSR form [N, 2]: row
    (b, h, q) has the ranges from ``offsets[b, h, q]`` up to ``offsets[b, h, q + 1]``.
    """
    if offsets is None:
        return builder("key_ranges", _tensors(ranges=ranges))
    return builder("key_ranges_csr", _tensors(offsets=offsets, ranges=ranges))


def slices(q_ranges: Any, k_ranges: Any, types: Any) -> Mask:
    """Rectangles `q_ranges` [N, 2] by `k_ranges` [N, 2], half-open; a pair is visible if one of them keeps it. `types` [N]:
    0 all, 1 causal from the bottom right corner, 2 inverse causal from the top left corner, 3 both."""
    return builder("slices", _tensors(q_ranges=q_ranges, k_ranges=k_ranges, types=types))


def scfa_index(q_idx: Any, k_idx: Any, strict: bool = False) -> Mask:
    """SCFA's QK-sparse form: `q_idx` [B | 1, Hq | Hkv | 1, Sq] and `k_idx` [.., Sk] are positions of kept queries and keys;
    visible where q_idx >= k_idx (`strict`: >). Negative positions are padding."""
    return builder("scfa_index", _tensors(q_idx=q_idx, k_idx=k_idx), (bool(strict),))


def scfa_hash(q_idx: Any, k_idx: Any, q_hash: Any, k_hash: Any, strict: bool = False) -> Mask:
    """SCFA's hash-sparse form: of positions `q_idx`, `k_idx` and `strict` as in `scfa_index`, and the buckets `q_hash`,
    `k_hash` (of the same shapes) are equal."""
    return builder("scfa_hash", _tensors(q_idx=q_idx, k_idx=k_idx, q_hash=q_hash, k_hash=k_hash), (bool(strict),))


def block_list(counts: Any, indices: Any, block_q: int, block_k: int, predicate: Mask | None = None) -> Mask:
    """Block lists in FlexAttention's form: row r of query blocks sees the key blocks ``indices[b, h, r, :counts[b, h, r]]``.

    `counts` [B | 1, H | 1, ceil(Sq / block_q)], `indices` [B | 1, H | 1, .., N] of blocks of `block_q` queries by `block_k`
    keys. `predicate` is applied inside the blocks.
    """
    tensors = _tensors(counts=counts, indices=indices)
    inside = predicate._node if predicate is not None else None
    more = predicate.tensors if predicate is not None else ()
    mask = builder("block_list", tensors, (int(block_q), int(block_k)), predicate=inside)
    return Mask._of(mask._node, tensors + more)


def _text(name: str, **numbers: int) -> str:
    """A name of the catalogue with its numbers."""
    return f"{name}({', '.join([f'{number}={constant(value)}' for number, value in numbers.items()])})"


def _tensors(**tensors: Any) -> tuple:
    for name, tensor in tensors.items():
        if tensor is None:
            raise BadArgumentError(name, "None", "a tensor")
    return tuple(as_looked_up(tensor, name) for name, tensor in tensors.items())
