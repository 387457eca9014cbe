"""Comparison of a drop-in with dense attention in fp64, forward and gradients."""

import torch

from conftest import assert_close


def rounded_leaves(tensors):
    """The same values in fp64, on the CPU, with gradients of their own."""
    return [tensor.detach().cpu().double().requires_grad_() for tensor in tensors]


def assert_same(inputs, got, wanted_of, units=16.0, lse_units=64.0):
    """`got` (out, lse) of the leaves `inputs` is `wanted_of(*inputs in fp64)`, and so are the gradients of a sum of random
    multiples of out and of the lse of rows that see something. `lse` may be None."""
    exact = rounded_leaves(inputs)
    dtype, device = inputs[0].dtype, inputs[0].device
    wanted = wanted_of(*exact)
    assert got[0].dtype == dtype and got[0].device == device
    assert_close(got[0], wanted[0], dtype)
    of_out = torch.randn(wanted[0].shape).to(dtype).double()
    ours, theirs = (got[0].double() * of_out.to(device)).sum(), (wanted[0] * of_out).sum()
    if got[1] is not None:
        assert got[1].dtype == torch.float32
        assert_close(got[1], wanted[1], torch.float32, lse_units)
        of_lse = torch.randn(wanted[1].shape).double()
        seen = torch.isfinite(wanted[1])
        ours = ours + (torch.where(seen.to(device), got[1], 0.0).double() * of_lse.to(device)).sum()
        theirs = theirs + (torch.where(seen, wanted[1], 0.0) * of_lse).sum()
    for mine, exactly, tensor in zip(torch.autograd.grad(ours, inputs), torch.autograd.grad(theirs, exact), inputs):
        assert mine.dtype == tensor.dtype and mine.shape == tensor.shape
        assert_close(mine, exactly, dtype, units)

