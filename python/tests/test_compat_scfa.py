"""flashspan.compat.scfa against what SCFA defines: same bucket or both kept, and the key not behind the query."""

import pytest
import torch

import reference
from compat_reference import assert_same
from conftest import gapped
from flashspan import BadArgumentError
from flashspan.compat import scfa


def leaves(device, q_len=100, kv_len=131, kv_heads=2):
    shapes = ((2, q_len, 4, 32), (2, kv_len, kv_heads, 32), (2, kv_len, kv_heads, 16))
    return [gapped(shape, torch.float16, device).detach().requires_grad_() for shape in shapes]


def seen(q_values, k_values, together):
    """bool [B, H, Nq, Nk] of [B, N, H] indices: `together` of the values, and the order of positions."""
    k_values = k_values.repeat_interleave(q_values.shape[2] // k_values.shape[2], dim=2)
    by_value = together(q_values.transpose(1, 2)[..., :, None], k_values.transpose(1, 2)[..., None, :])
    return by_value & (torch.arange(q_values.shape[1])[:, None] >= torch.arange(k_values.shape[1])[None, :])


def compare(device, mode, q_idx, k_idx, together):
    inputs = leaves(device, q_idx.shape[1], k_idx.shape[1], k_idx.shape[2])
    out = scfa.dynamic_sparse_attention(*inputs, q_idx.to(device), k_idx.to(device), 0.2, sparsity_mode=mode)
    visible = seen(q_idx, k_idx, together)
    assert_same(inputs, (out, None), lambda *exact: reference.attention(*exact, visible, scale=0.2))
    assert torch.all(out.detach().cpu().transpose(1, 2)[~visible.any(-1)] == 0)


def buckets(*shape, count):
    return torch.randint(0, count, shape, dtype=torch.int32)


def flags(*shape, share):
    return (torch.rand(shape) < share).float()


@pytest.mark.usefixtures("poisoned_results")
class TestValues:
    @pytest.mark.parametrize("count, kv_heads", [(1, 4), (5, 4), (40, 2)])
    def test_of_buckets(self, device, count, kv_heads):
        compare(device, "hash", buckets(2, 100, 4, count=count), buckets(2, 131, kv_heads, count=count),
                lambda q, k: q == k)

    def test_of_buckets_that_follow_the_position(self, device):
        """Where the original's backward leaves out tiles."""
        q_hash = (torch.arange(300) < 150).int()[None, :, None].repeat(2, 1, 4)
        k_hash = (torch.arange(300) >= 140).int()[None, :, None].repeat(2, 1, 4)
        compare(device, "hash", q_hash, k_hash, lambda q, k: q == k)

    @pytest.mark.parametrize("share, kv_heads", [(0.0, 4), (0.3, 2), (1.0, 4)])
    def test_of_kept_ones(self, device, share, kv_heads):
        compare(device, "qk", flags(2, 100, 4, share=share), flags(2, 131, kv_heads, share=share),
                lambda q, k: (q == 1) & (k == 1))

    def test_of_buckets_of_a_long_sequence(self, device):
        """On a GPU so long that heads have thousands of partial tiles, more than a plan keeps bits of."""
        length, heads, head_dim = (6000, 16, 64) if device == "cuda" else (600, 2, 16)
        inputs = [torch.randn(1, length, heads, head_dim, device=device).to(torch.bfloat16).requires_grad_() for _ in range(3)]
        q_hash, k_hash = (buckets(1, length, heads, count=16).to(device) for _ in range(2))
        out = scfa.hash_sparse_attention(*inputs, q_hash, k_hash)
        gradient = torch.randn(out.shape, device=device).to(out.dtype)
        out.backward(gradient)
        exact = [tensor.detach().float().requires_grad_() for tensor in inputs]
        position = torch.arange(length, device=device)
        for h in range(heads):
            q, k, v = (tensor[0, :, h] for tensor in exact)
            visible = (q_hash[0, :, h, None] == k_hash[0, None, :, h]) & (position[:, None] >= position)
            scores = (q @ k.T * head_dim**-0.5).masked_fill(~visible, -torch.inf)
            weights = torch.where(visible, (scores - scores.detach().amax(1, keepdim=True).clamp(min=-1e30)).exp(), 0.0)
            wanted = weights @ v / weights.sum(1, keepdim=True).clamp(min=1e-30)
            assert torch.allclose(out[0, :, h].float(), wanted, atol=0.03), h
            wanted.backward(gradient[0, :, h].float())
        for ours, theirs in zip(inputs, exact):
            assert torch.allclose(ours.grad.float(), theirs.grad, atol=0.08)

    def test_what_is_dropped_may_be_nan(self, device):
        q, k, v = (tensor.detach() for tensor in leaves(device, 100, 100, 4))
        keep = flags(2, 100, 4, share=0.5).to(device)
        wanted = scfa.qk_sparse_attention(q, k, v, keep, keep)
        poisoned = (torch.where(keep[..., None] == 1, tensor, torch.nan) for tensor in (q, k, v))
        assert torch.equal(scfa.qk_sparse_attention(*poisoned, keep, keep), wanted)


def test_compact_puts_the_kept_first_in_their_order():
    keep = torch.tensor([[0.0, 1, 1, 0, 1], [1.0, 0, 0, 0, 0]])[..., None]
    x = torch.arange(10.0).reshape(2, 5, 1, 1)
    rows, index, counts = scfa.compact(keep, x)
    assert index[..., 0].tolist() == [[1, 2, 4, 0, 3], [0, 1, 2, 3, 4]]
    assert rows.flatten().tolist() == [1, 2, 4, 0, 3, 5, 6, 7, 8, 9] and counts.flatten().tolist() == [3, 1]
    again, same, nothing = scfa.compact(keep, -x, index)
    assert torch.equal(again, -rows) and same is index and nothing is None
    padded = scfa.pad_index(index, counts, pad_idx=-7)
    assert padded.dtype == torch.int32
    assert padded[..., 0].tolist() == [[1, 2, 4, -7, -7], [0, -7, -7, -7, -7]]


def test_no_length_is_read_by_the_host(cuda):
    """A graph that was captured once serves other flags."""
    q, k, v = (torch.randn(1, 200, 2, 64, device=cuda, dtype=torch.float16) for _ in range(3))
    keep = flags(1, 200, 2, share=0.5).to(cuda)
    scfa.qk_sparse_attention(q, k, v, keep, keep)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = scfa.qk_sparse_attention(q, k, v, keep, keep)
    keep.copy_(flags(1, 200, 2, share=0.2))
    graph.replay()
    visible = seen(keep.cpu(), keep.cpu(), lambda q, k: (q == 1) & (k == 1))
    wanted, _ = reference.attention(q.cpu(), k.cpu(), v.cpu(), visible)
    assert torch.allclose(out.cpu().double(), wanted, atol=4e-3)


@pytest.mark.parametrize("mode, index, match", [
    ("other", buckets(2, 100, 4, count=2), "sparsity_mode"),
    ("hash", buckets(2, 100, 4, count=2).long(), "q_hash"),
    ("hash", buckets(2, 99, 4, count=2), "q_hash"),
    ("qk", buckets(2, 100, 4, count=2), "q_keep"),
])
def test_refusals(mode, index, match):
    q, k, v = leaves("cpu", 100, 100, 4)
    with pytest.raises(BadArgumentError, match=match):
        scfa.dynamic_sparse_attention(q, k, v, index, index, sparsity_mode=mode)
