"""Rows in another order for each batch entry and head, and back again."""

from __future__ import annotations

from typing import Any

import torch


class RowOrder:
    """A permutation of the N rows of each batch entry and head.

    A gradient goes the other way by the other index, each row read once: the gradient of `torch.gather` would be added up
    element by element, and that of `scatter` begin with zeros.

    Args:
        order: int64 [B, H, N]: the row that stands at each place, every row once.
    """

    def __init__(self, order: torch.Tensor) -> None:
        batch, heads, length = self._shape = order.shape
        first = torch.arange(batch, device=order.device)[:, None, None] * length
        head = torch.arange(heads, device=order.device)[None, :, None]
        self._there = ((first + order) * heads + head).flatten()
        places = torch.arange(self._there.shape[0], device=order.device)
        self._back = torch.empty_like(self._there).scatter(0, self._there, places)

    def ordered(self, rows: torch.Tensor) -> torch.Tensor:
        """[B, H, N, D] in this order, of `rows` [B, N, H, D]."""
        batch, heads, length = self._shape
        return _Rows.apply(rows.flatten(0, 2), self._there, self._back).view(batch, heads, length, -1)

    def restored(self, rows: torch.Tensor) -> torch.Tensor:
        """[B, N, H, D] in their own order, of `rows` [B, H, N, D] in this one."""
        batch, heads, length = self._shape
        return _Rows.apply(rows.flatten(0, 2), self._back, self._there).view(batch, length, heads, -1)


class _Rows(torch.autograd.Function):
    """Rows of a matrix by an index, whose inverse is given as well."""

    @staticmethod
    def forward(ctx: Any, rows: torch.Tensor, index: torch.Tensor, inverse: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(index, inverse)
        return rows[index]

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        index, inverse = ctx.saved_tensors
        return _Rows.apply(gradients[0], inverse, index), None, None
