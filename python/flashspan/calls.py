"""Described calls of the library: what a call's tensors look like is told once, then only addresses are passed."""

from __future__ import annotations

import numbers
from collections.abc import Callable, Sequence
from threading import get_ident
from typing import Any

from . import _core, log
from .backends import attention_on, may_compile
from .errors import BadArgumentError, FlashspanError
from .program import bound, read
from .tensors import torch_module

LAYOUTS = ("bshd", "bhsd")

# Descriptions are small; past so many of them all are forgotten, and made again as they are needed.
_MOST_CALLS = 4096
_calls: dict[tuple, Any] = {}
_compiled_together: set[tuple] = set()

# Workspaces that are kept, with the tiles that are planned in them: one of at most so many bytes, and past so many
# bytes of them, or plans, all are let go. Calls that plan anew share one workspace of a stream.
LARGEST_KEPT_WORKSPACE, _MOST_KEPT_BYTES, _MOST_PLANS, _MOST_WORKSPACES = 2**25, 2**26, 256, 16
_plans: dict[tuple, tuple[Any, Any]] = {}
_workspaces: dict[tuple, Any] = {}


def check_layout(layout: str) -> None:
    if layout not in LAYOUTS:
        raise BadArgumentError("layout", repr(layout), "'bshd' [batch, sequence, heads, head dim] or 'bhsd'")


def check_scale(scale: Any) -> None:
    """Numbers alone: a tensor's value may change, and calls are remembered by their scale."""
    if scale is None or isinstance(scale, (float, numbers.Real)):
        return
    torch = torch_module()
    if torch is None or not isinstance(scale, (torch.SymFloat, torch.SymInt)):
        raise BadArgumentError("scale", type(scale).__name__,
                               "a number, or None; one that changes or is learned: Score('score * gain[0]', gain=...)")


def known(seen: tuple) -> Any:
    """The call that is remembered under `seen`, or None."""
    return _calls.get(seen)


def remembered(seen: tuple, call: Any) -> Any:
    """`call`, from now on known under `seen`, which has to tell everything that it was made from."""
    if len(_calls) >= _MOST_CALLS:
        _calls.clear()
    _calls[seen] = call
    return call


def forget_all() -> None:
    """The next calls are described anew: their workspaces may have other sizes."""
    _calls.clear()
    _compiled_together.clear()
    _plans.clear()
    _workspaces.clear()


def keeps_plans() -> bool:
    """Whether calls may keep their plans: not where a kernel stands in for another (`freeze`) and plans for itself."""
    return may_compile()


def kept_workspace(size: int, device: Any, stream: int, new_workspace: Callable[[int, Any], Any]) -> Any:
    """A tensor of at least `size` bytes for runs on a stream that keep nothing in it: this thread's alone, as these come one
    after another. `new_workspace` makes one of a size on a device."""
    key = device, stream, get_ident()
    kept = _workspaces.get(key)
    if kept is None or kept.numel() < size:
        if len(_workspaces) >= _MOST_WORKSPACES:
            _workspaces.clear()
        kept = _workspaces[key] = new_workspace(size, device)
    return kept


def kept_plan(call: Any, device: Any, stream: int, values: int,
              new_workspace: Callable[[int, Any], Any]) -> tuple[Any, Any]:
    """(workspace, plan) for runs of `call` on a stream under a mask of these `Program.values`. They are this thread's alone, as
    runs that share a plan have to come one after another."""
    key = call, stream, values, get_ident()
    kept = _plans.get(key)
    if kept is None:
        bytes_kept = call.workspace_bytes + sum(other.workspace_bytes for other, *_ in tuple(_plans))
        if len(_plans) >= _MOST_PLANS or bytes_kept > _MOST_KEPT_BYTES:
            _plans.clear()
        kept = _plans[key] = new_workspace(call.workspace_bytes, device), _core.TilePlan()
    return kept


def sizes_of(query: tuple, key: tuple, value: tuple) -> tuple:
    """The extension's sizes of a call, of descriptions in the order [B, H, S, D]."""
    for name, tensor in (("query", query), ("key", key), ("value", value)):
        if len(tensor[2]) != 4:
            raise BadArgumentError(name, f"rank {len(tensor[2])}", "rank 4: batch, sequence, heads, head dim")
    batch, query_heads, q_len, head_dim = query[2]
    return batch, query_heads, key[2][1], q_len, key[2][2], head_dim, value[2][3]


def programs(mask: str, mask_tensors: list[tuple], score: str, score_tensors: list[tuple],
             sizes: tuple) -> tuple[Any, Any]:
    """The extension's Mask and Score, or None, of descriptions; an empty text is none."""
    return (bound(_core.Mask, mask, mask_tensors, sizes) if mask else None,
            bound(_core.Score, score, score_tensors, sizes) if score else None)


def forward(device: int, mask: Any, score: Any, scale: float | None, tile: Sequence[int] | None,
            *tensors: tuple | None) -> Any:
    """`tile`: `Config.tile`; empty or None: the library chooses. `tensors`: descriptions of query, key, value, sink or None, out,
    lse. Its ``run`` takes their addresses in that order, 0 for None, and the addresses of the workspace and of the stream."""
    return _core.Forward(attention_on(device), mask, score, scale, False, tensors, tile=tile or None)


def backward(device: int, mask: Any, score: Any, scale: float | None, deterministic: bool, tile: Sequence[int] | None,
             score_gradients: list, *tensors: tuple | None) -> Any:
    """`tile`: as of `forward`. `tensors`: descriptions of query, key, value, sink or None, out, lse, the gradients of out and of
    lse or None, and the results: the gradients of query, key, value and of sink or None. `score_gradients`: (name in the score,
    description of the gradient) of looked-up tensors. Its ``run`` is as that of `forward`, with the addresses of those at the
    end."""
    return _core.Backward(attention_on(device), mask, score, scale, deterministic, tensors, score_gradients, tile or None)


def compile_together(device: int, kind: tuple, call: Any, also: Callable[[], Any]) -> None:
    """Compiles the kernels of `call` and of the call that `also` describes at the same time, where calls may compile.

    Once for each `kind`, which tells calls of other lengths from those that may take other kernels. Whatever is wrong with one
    of them is said by its own run.
    """
    if not may_compile() or (device, kind) in _compiled_together:
        return
    if len(_compiled_together) >= _MOST_CALLS:
        _compiled_together.clear()
    _compiled_together.add((device, kind))
    try:
        attention_on(device).prepare_all([call, also()], 0.0)
    except FlashspanError as error:
        log.logger.debug("not compiled ahead: %s", error)


def names_in(score: str) -> list[str]:
    """Names of the tensors that a score looks up, in order, from its description."""
    return read(score)["tensors"] if score else []
