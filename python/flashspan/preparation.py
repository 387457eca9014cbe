"""Kernels compiled ahead of the calls that use them, and compiles forbidden from then on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from . import calls
from .backends import attention_on, freeze_all
from .config import tile_of
from .errors import BadArgumentError
from .mask import as_mask
from .score import as_score
from .tensors import cuda_device, is_torch

MISS_POLICIES = ("compile", "warn", "refuse", "interpret")


def prepare(attentions: Iterable[Mapping[str, Any]], backward: bool = True, time_out: float | None = None) -> list[dict]:
    """Compiles and loads what calls of `flashspan.attention` would use, several at a time, without launching anything.

    Args:
        attentions: the keyword arguments of each call: torch tensors ``query``, ``key`` and ``value`` of its shapes, strides
            and dtype, on one device for all (their values are not read), and its mask, score, ...
        backward: also for the backward.
        time_out: seconds to wait for a kernel at most; its compile goes on in the background.

    Returns:
        For each kernel, in the order of the calls and forward before backward, a dictionary: spec, key, outcome ("loaded",
        "memory", "disk", "layer", "shared", "service" or "built"), lowering, compile_ms, registers, shared_bytes, spill_bytes. After it such a call neither
        compiles nor synchronises, and can be captured in a CUDA graph. Lengths, batch and numbers of heads may differ; kernels
        for so few queries that keys are shared out among processors are others.

    Raises:
        What the calls would raise, or TimedOutError, once all are done.
    """
    described, devices = [], set()
    for arguments in attentions:
        described += _described(backward=backward, **arguments)
        devices.add(cuda_device(arguments["query"]))
    if len(devices) > 1:
        raise BadArgumentError("attentions", f"tensors on {len(devices)} devices", "tensors on one device")
    return [record for device in devices for record in attention_on(device).prepare_all(described, time_out or 0.0)]


def freeze(on_miss: str = "refuse") -> None:
    """From now on, what a call does about a kernel that it would have to compile.

    Args:
        on_miss: ``"refuse"``: the call raises NotPreparedError. ``"warn"``: it compiles, and logs a warning. ``"interpret"``:
            it takes a slower kernel that interprets its mask (prepared calls tell for which dtypes and head dims; scores are
            refused) while its own compiles in the background. ``"compile"``: it compiles, as before.

    A kernel in the cache on disk is still loaded, and `prepare` compiles as before.
    """
    if on_miss not in MISS_POLICIES:
        raise BadArgumentError("on_miss", repr(on_miss), ", ".join(MISS_POLICIES))
    freeze_all(on_miss)
    calls.forget_all()


def _described(query: Any, key: Any, value: Any, mask: Any = None, score: Any = None, scale: float | None = None,
               layout: str = "bshd", deterministic: bool = False, sink: Any = None, backward: bool = True,
               return_lse: bool = False, config: Any = None, backward_config: Any = None) -> list:
    del return_lse  # makes no difference to kernels
    calls.check_layout(layout)
    if not is_torch(query):
        raise BadArgumentError("query", type(query).__name__, "a torch tensor")
    from . import torch_ops

    return torch_ops.described(query, key, value, as_mask(mask), as_score(score), scale, layout, deterministic, sink,
                               backward, tile_of(config), tile_of(backward_config))
