"""Rows in another order, as flashspan.compat.scfa sorts them."""

import pytest
import torch

from flashspan.compat.row_order import RowOrder


def permutations(batch, heads, length):
    return torch.stack([torch.stack([torch.randperm(length) for _ in range(heads)]) for _ in range(batch)])


@pytest.mark.parametrize("dtype, head_dim, first", [
    (torch.float64, 4, 0), (torch.float32, 4, 0), (torch.float32, 3, 0), (torch.bfloat16, 8, 0), (torch.bfloat16, 8, 2),
])
def test_rows_go_there_and_back(dtype, head_dim, first):
    """Elements that can be read eight bytes at a time, and those that cannot for their number or where they begin."""
    order = permutations(2, 3, 7)
    rows = torch.randn(2, 7, 3, 2, head_dim + first).to(dtype)[..., 1, first:]
    there = RowOrder(order).ordered(rows)
    for b in range(2):
        for h in range(3):
            assert torch.equal(there[b, h], rows[b, order[b, h], h])
    assert torch.equal(RowOrder(order).restored(there), rows)


def test_gradients_are_those_of_finite_differences():
    order = RowOrder(permutations(2, 3, 7))
    rows = torch.randn(2, 7, 3, 4, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(order.ordered, rows)
    assert torch.autograd.gradcheck(order.restored, rows.detach().transpose(1, 2).requires_grad_())
    assert torch.autograd.gradgradcheck(order.ordered, rows)
