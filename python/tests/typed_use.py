"""What a type checker makes of calls of the package; mypy reads it, nothing runs it."""

from __future__ import annotations

from typing import Any

import numpy
import torch

import flashspan
from flashspan.compat import flash_attn, flashmask, flex, scfa

try:
    from typing import assert_type
except ImportError:  # Python 3.10
    from typing_extensions import assert_type

tensor = torch.zeros(1, 8, 2, 16)
array = numpy.zeros((1, 8, 2, 16), numpy.float32)

assert_type(flashspan.attention(tensor, tensor, tensor), torch.Tensor)
assert_type(flashspan.attention(tensor, tensor, tensor, mask="causal", return_lse=True), tuple[torch.Tensor, torch.Tensor])
of_arrays: numpy.ndarray = flashspan.attention(array, array, array, lambda b, h, q, k: q >= k)
assert_type(flashspan.masks.causal() & ~flashspan.Mask("q == k") | flashspan.masks.full().inverse(), flashspan.Mask)
assert_type(flashspan.masks.causal().density(8), float)
assert_type(flashspan.masks.causal().explain(8), flashspan.explanation.Explanation)
assert_type(flashspan.prepare([{"query": tensor, "key": tensor, "value": tensor}]), list[dict[Any, Any]])
assert_type(scfa.qk_sparse_attention(tensor, tensor, tensor, tensor[..., 0], tensor[..., 0]), torch.Tensor)
assert_type(flex.create_block_mask(lambda b, h, q, k: q >= k, None, None, 8, 8), flex.BlockMask)

asked: bool = array.size > 1
assert_type(flashspan.attention(tensor, tensor, tensor, return_lse=asked), torch.Tensor | tuple[torch.Tensor, torch.Tensor])

flash_attn.flash_attn_func(tensor, tensor, tensor, causal=True).sum()
flashmask.flashmask_attention(tensor, tensor, tensor, causal=True).sum()

flashspan.attention(tensor, tensor, tensor, mask=3)  # type: ignore[call-overload]
flashspan.attention(tensor, tensor, tensor, return_lse="yes")  # type: ignore[call-overload]
flashspan.masks.window(left="9")  # type: ignore[arg-type]
