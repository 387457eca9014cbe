"""Hugging Face's transformers (5.10 and later): an attention implementation that its models take by name.

    from flashspan.compat import transformers
    transformers.register()
    model = AutoModelForCausalLM.from_pretrained(..., attn_implementation="span_attention")

A model's mask functions (causal, sliding window, chunks, packed documents, padding) are traced instead of being turned into a
dense tensor, once for a forward of the model, and its layers share the result.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import torch
import transformers
from torch.nn.attention.flex_attention import BlockMask

from .. import masks
from ..attention import attention
from ..errors import BadArgumentError, UnsupportedError
from ..mask import Mask
from ..score import Score
from ..trace import trace
from .arguments import refuse_unless_default
from ..remembered import remembered
from .scores import softcap_term, softcapped
from .sequences import packed_mask


def register(name: str = "span_attention") -> None:
    """Makes `name` an attention implementation of transformers: ``attn_implementation=name`` takes it, in a model's
    ``from_pretrained``, ``from_config`` or ``set_attn_implementation``. The name may not contain "flash": what does is to
    transformers one of flash-attn's packages, which it then tries to import.

    What it serves: grouped queries, sliding windows, chunks, packed documents (``position_ids`` that start again, or
    ``cu_seq_lens_q`` and ``cu_seq_lens_k``), padding, masks of four axes, soft caps, attention sinks, position biases, caches.
    Tokens of padding give zeros, where eager attention gives them a mean of all values; no other token sees either.

    Raises:
        BadArgumentError: `name` contains "flash".
    """
    if "flash" in name:
        raise BadArgumentError("name", repr(name), 'one without "flash", which means flash-attn to transformers')
    transformers.AttentionInterface.register(name, attention_forward)
    transformers.AttentionMaskInterface.register(name, traced_mask)


class TracedMask(BlockMask):
    """A traced mask for calls of some sizes. The functions of transformers ask for a mask's type and rank, and pass on as it
    is what they take for a mask of FlexAttention.

    Attributes:
        mask: the Mask itself, with density(), explain() and picture().
        shape: (B, 1, Sq, Sk).
    """

    def __init__(self, mask: Mask, shape: tuple[int, int, int, int]) -> None:
        self.mask, self._shape = mask, shape

    @property
    def shape(self) -> tuple[int, int, int, int]:
        return self._shape

    def to(self, device: Any) -> TracedMask:
        """The same on another device."""
        return TracedMask(self.mask.to(device), self._shape)

    def __repr__(self) -> str:
        return f"TracedMask({self.mask!r}, {self._shape})"

    __str__ = __repr__


def traced_mask(batch_size: int, q_length: int, kv_length: int, q_offset: int | torch.Tensor = 0, kv_offset: int = 0,
                mask_function: Callable[..., Any] | None = None, attention_mask: torch.Tensor | None = None,
                **unused: Any) -> TracedMask:
    """The mask of a forward of a model, as transformers' AttentionMaskInterface asks for it.

    Args:
        batch_size, q_length, kv_length: sizes of the call.
        q_offset, kv_offset: positions of the first query and of the first key; another value compiles nothing.
        mask_function: (b, h, q, k) of positions; traced. None is causal.
        attention_mask: [B, keys]: 0 where a token is padding; positions behind its end are padding.

    Raises:
        TraceError: `mask_function` does what cannot be traced; the message names its line.
    """
    del unused
    mask = _at_positions(_causal if mask_function is None else mask_function, q_offset, kv_offset)
    if attention_mask is not None:
        mask = mask & Mask("is_token[b, k + kv_offset] != 0", is_token=attention_mask, kv_offset=kv_offset)
    return TracedMask(mask.fixed(), (batch_size, 1, q_length, kv_length))


def _at_positions(mask_function: Callable[..., Any], q_offset: int | torch.Tensor, kv_offset: int | torch.Tensor) -> Mask:
    """The mask of `mask_function` at the positions of queries and keys.

    An offset is a number given at run time, for which fewer lowerings fit: one of 0 is left out, and so is one that
    `mask_function` makes no use of.
    """
    def at_positions(b: Any, h: Any, q: Any, k: Any, q_offset: Any = 0, kv_offset: Any = 0) -> Any:
        return mask_function(b, h, q + q_offset, k + kv_offset)

    offsets = {"q_offset": q_offset, "kv_offset": kv_offset}
    tensors = {name: offset.reshape(()) for name, offset in offsets.items() if isinstance(offset, torch.Tensor)}
    numbers = {name: offset for name, offset in offsets.items() if isinstance(offset, int) and offset != 0}
    text, looked_up = trace(at_positions, False, {**numbers}, tensors)
    used = set(re.findall(r"\w+", text))
    return Mask(text, **looked_up, **{name: number for name, number in numbers.items() if name in used})


def attention_forward(module: torch.nn.Module, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor,
                      attention_mask: TracedMask | torch.Tensor | None, dropout: float = 0.0, scaling: float | None = None,
                      is_causal: bool | None = None, sliding_window: int | None = None, softcap: float | None = None,
                      s_aux: torch.Tensor | None = None, position_bias: torch.Tensor | None = None,
                      cu_seq_lens_q: torch.Tensor | None = None, cu_seq_lens_k: torch.Tensor | None = None,
                      head_mask: torch.Tensor | None = None, output_attentions: bool = False,
                      sinks: torch.Tensor | None = None, indices: torch.Tensor | None = None,
                      block_indices: torch.Tensor | None = None, **unused: Any) -> tuple[torch.Tensor, None]:
    """Attention of one layer, as transformers' AttentionInterface calls it.

    Args:
        query: [B, Hq, Sq, D]. key: [B, Hkv, Sk, D]. value: [B, Hkv, Sk, Dv]. Dtypes and head dims as `flashspan.attention`.
        attention_mask: of `traced_mask`; or [B | 1, Hq | 1, Sq, Sk], of truth values, or of numbers that are added to the
            scores, of which the dtype's lowest hides; or None, for which `is_causal` and `sliding_window` stand.
        dropout: 0 only.
        scaling: None is 1 / sqrt(D).
        is_causal: None is what the module says.
        sliding_window: without a mask: so many keys up to the query's own are seen.
        softcap: scores become softcap * tanh(score / softcap).
        s_aux: [Hq]: one more logit for each head.
        position_bias: [B | 1, Hq | 1, Sq, Sk], added to the scores; takes gradients.
        cu_seq_lens_q, cu_seq_lens_k: int32 [N + 1], for a batch of 1: where each packed sequence begins, and the end of the
            last.
        head_mask, output_attentions, sinks, indices, block_indices: their defaults only. With the last three, models hand over
            a sparsity or logits of their own, which would change the result.

    Returns:
        (out [B, Sq, Hq, Dv], None): there are no attention weights.

    Raises:
        UnsupportedError: dropout, attention weights.
        BadArgumentError: a mask of another kind or shape.
    """
    del unused
    refuse_unless_default(dropout=(dropout, 0.0), head_mask=(head_mask, None), output_attentions=(output_attentions, False),
                          sinks=(sinks, None), indices=(indices, None), block_indices=(block_indices, None))
    causal = getattr(module, "is_causal", True) if is_causal is None else is_causal
    causal = causal and query.shape[2] > 1
    if cu_seq_lens_q is None or cu_seq_lens_k is None:
        mask = _mask_of(attention_mask, causal, sliding_window)
    else:
        mask = _packed(query, cu_seq_lens_q, cu_seq_lens_k, attention_mask, causal, sliding_window)
    query, key, value = (tensor.transpose(1, 2) for tensor in (query, key, value))
    score = _score(softcap, position_bias, attention_mask if _is_added(attention_mask) else None)
    return attention(query, key, value, mask=mask, score=score, scale=scaling, sink=s_aux), None


def _causal(b: Any, h: Any, q: Any, k: Any) -> Any:
    return q >= k


def _is_added(mask: Any) -> bool:
    return isinstance(mask, torch.Tensor) and mask.is_floating_point()


def _mask_of(mask: TracedMask | torch.Tensor | None, causal: bool, sliding_window: int | None) -> Mask | None:
    if mask is None:
        return _without_mask(causal, sliding_window)
    if isinstance(mask, TracedMask):
        return mask.mask
    if not isinstance(mask, torch.Tensor) or mask.dim() != 4:
        shown = f"rank {mask.dim()}" if isinstance(mask, torch.Tensor) else type(mask).__name__
        raise BadArgumentError("attention_mask", shown, "a traced mask, or a tensor [B, H, Sq, Sk]")
    if mask.is_floating_point():
        return Mask(f"seen[{_place(mask)}] > lowest", seen=mask, lowest=torch.finfo(mask.dtype).min)
    return Mask(f"seen[{_place(mask)}] != 0", seen=mask)


@remembered
def _without_mask(causal: bool, sliding_window: int | None) -> Mask | None:
    left, right = _bounds(causal, sliding_window)
    if left is not None:
        return masks.window(left, right)
    return masks.causal() if causal else None


def _bounds(causal: bool, sliding_window: int | None) -> tuple[int | None, int | None]:
    """Keys before and behind a query's position; None does not bind."""
    reach = None if sliding_window is None else sliding_window - 1
    return reach, 0 if causal else reach


def _packed(query: torch.Tensor, cu_seq_lens_q: torch.Tensor, cu_seq_lens_k: torch.Tensor,
            mask: TracedMask | torch.Tensor | None, causal: bool, sliding_window: int | None) -> Mask:
    if query.shape[0] != 1:
        raise UnsupportedError("cu_seq_lens_q", f"a batch of {query.shape[0]}", "a batch of 1: sequences one behind the other")
    bounds = _bounds(causal, sliding_window) if mask is None else (None, None)
    packed, _, _ = packed_mask(query.shape[2], cu_seq_lens_q, cu_seq_lens_k, *bounds)
    inside = _mask_of(mask, False, None)
    return packed if inside is None else packed & inside


def _score(softcap: float | None, *biases: Any) -> Score | None:
    """The soft cap, then those of `biases` that are tensors."""
    tensors = {f"bias{number}": bias for number, bias in enumerate(biases) if bias is not None}
    if not tensors:
        return softcapped(softcap)
    text, numbers = softcap_term(softcap)
    terms = [f"{name}[{_place(bias)}]" for name, bias in tensors.items()]
    return Score(" + ".join([text, *terms]), **numbers, **tensors)


def _place(tensor: torch.Tensor) -> str:
    """Indices into a tensor [B, H, Sq, Sk], any of whose axes may be of one element for all."""
    return ", ".join(index if size != 1 else "0" for index, size in zip("bhqk", tensor.shape))
