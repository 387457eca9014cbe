"""Rows in another order, as flashspan.compat.scfa sorts them."""

import torch

from flashspan.compat.row_order import RowOrder


def test_rows_and_their_gradients_go_there_and_back():
    """Of a view with gaps between its rows; gradients against finite differences, the second ones too."""
    order = torch.stack([torch.stack([torch.randperm(7) for _ in range(3)]) for _ in range(2)])
    rows = torch.randn(2, 7, 3, 2, 4, dtype=torch.float64)[..., 1, :].requires_grad_()
    there = RowOrder(order).ordered(rows)
    for b in range(2):
        for h in range(3):
            assert torch.equal(there[b, h], rows[b, order[b, h], h])
    assert torch.equal(RowOrder(order).restored(there), rows)
    assert torch.autograd.gradcheck(RowOrder(order).ordered, rows)
    assert torch.autograd.gradcheck(RowOrder(order).restored, there.detach().requires_grad_())
    assert torch.autograd.gradgradcheck(RowOrder(order).ordered, rows)
