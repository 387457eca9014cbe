"""Rows in another order for each batch entry and head, and back again."""

from __future__ import annotations

from typing import Any

import torch

_WIDE = torch.int64


class RowOrder:
    """A permutation of the N rows of each batch entry and head.

    A gradient goes the other way by the other index, each row read once: the gradient of `torch.gather` would be added up
    element by element, and that of `scatter` begin with zeros.

    Args:
        order: int64 [B, H, N]: the row that stands at each place, every row once.
    """

    def __init__(self, order: torch.Tensor) -> None:
        self._there = order
        places = torch.arange(order.shape[2], device=order.device).expand_as(order)
        self._back = torch.empty_like(order).scatter(2, order, places)

    def ordered(self, rows: torch.Tensor) -> torch.Tensor:
        """[B, H, N, D] in this order, of `rows` [B, N, H, D]."""
        return _Rows.apply(rows, self._there, self._back, True)

    def restored(self, rows: torch.Tensor) -> torch.Tensor:
        """[B, N, H, D] in their own order, of `rows` [B, H, N, D] in this one."""
        return _Rows.apply(rows, self._back, self._there, False)


class _Rows(torch.autograd.Function):
    """Rows by an index [B, H, N], whose inverse is given as well: [B, H, N, D] of [B, N, H, D], or the other way."""

    @staticmethod
    def forward(ctx: Any, rows: torch.Tensor, index: torch.Tensor, inverse: torch.Tensor, heads_first: bool) -> torch.Tensor:
        ctx.save_for_backward(index, inverse)
        ctx.heads_first = heads_first
        wide = (rows.view(_WIDE) if _widens(rows) else rows).transpose(1, 2)
        places = index if heads_first else index.transpose(1, 2)
        return wide.gather(2 if heads_first else 1, places[..., None].expand_as(wide)).view(rows.dtype)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, None, None, None]:
        index, inverse = ctx.saved_tensors
        return _Rows.apply(gradients[0], inverse, index, not ctx.heads_first), None, None, None


def _widens(rows: torch.Tensor) -> bool:
    """Whether its memory can be read as elements of 8 bytes: the kernel of `gather` takes as long for those as for small ones."""
    if torch.compiler.is_compiling():
        return False  # the compiler writes its own
    elements = _WIDE.itemsize // rows.element_size()
    places = (rows.storage_offset(), rows.shape[3], *rows.stride()[:3])
    return rows.stride(3) == 1 and all(place % elements == 0 for place in places)
