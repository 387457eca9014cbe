"""Kernels compiled ahead of the calls that use them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from . import calls
from .errors import BadArgumentError
from .mask import as_mask
from .score import as_score
from .tensors import is_torch


def prepare(attentions: Iterable[Mapping[str, Any]], backward: bool = True, threads: int | None = None) -> list[dict]:
    """Compiles and loads what calls of `flashspan.attention` would use, without launching anything.

    Args:
        attentions: the keyword arguments of each call: torch tensors ``query``, ``key`` and ``value`` of its shapes, strides
            and dtype (their values are not read), and its mask, score, ...
        backward: also for the backward.
        threads: how many compile at a time; not given, as many as there are processors.

    Returns:
        For each kernel a dictionary: spec, key, outcome ("loaded", "memory", "disk" or "built"), lowering, compile_ms,
        registers, shared_bytes, spill_bytes. After it such a call neither compiles nor synchronises, and can be captured in a
        CUDA graph. Lengths, batch and numbers of heads may differ; kernels for so few queries that keys are shared out among
        processors are others.

    Raises:
        What the calls would raise.
    """
    with ThreadPoolExecutor(threads or os.cpu_count()) as pool:
        records = list(pool.map(lambda arguments: _prepare_one(backward=backward, **arguments), attentions))
    return [record for part in records for record in part]


def _prepare_one(query: Any, key: Any, value: Any, mask: Any = None, score: Any = None, scale: float | None = None,
                 layout: str = "bshd", deterministic: bool = False, sink: Any = None, backward: bool = True,
                 return_lse: bool = False) -> list[dict]:
    del return_lse  # makes no difference to kernels
    calls.check_layout(layout)
    if not is_torch(query):
        raise BadArgumentError("query", type(query).__name__, "a torch tensor")
    from . import torch_ops

    return torch_ops.prepare(query, key, value, as_mask(mask), as_score(score), scale, layout, deterministic, sink, backward)
