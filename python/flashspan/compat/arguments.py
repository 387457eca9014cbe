"""Checks of the arguments that the drop-ins share."""

from __future__ import annotations

from typing import Any

import torch

from ..errors import BadArgumentError, UnsupportedError


def refuse_unless_default(**given: tuple[Any, Any]) -> None:
    """Raises UnsupportedError for the first argument that is not its default, of (value, default) by name."""
    for name, (value, default) in given.items():
        if value is not default and (isinstance(value, torch.Tensor) or value != default):
            shown = type(value).__name__ if isinstance(value, torch.Tensor) else repr(value)
            raise UnsupportedError(name, shown, f"{default!r} alone")


def check_rank(rank: int, axes: str, **tensors: Any) -> None:
    """Raises BadArgumentError for the first tensor that has not `rank` axes."""
    for name, tensor in tensors.items():
        if len(tensor.shape) != rank:
            raise BadArgumentError(name, f"rank {len(tensor.shape)}", f"rank {rank}: {axes}")
