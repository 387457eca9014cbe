"""flashspan.compat.flashmask against FlashMask's documented rules, written down row by row and column by column."""

import pytest
import torch

import reference
from compat_reference import assert_same
from conftest import gapped
from flashspan import BadArgumentError, UnsupportedError
from flashspan.compat.flashmask import flashmask_attention


def hidden_by(indices, causal, q_len, kv_len):
    """bool [B, Hm, Sq, Sk]: the documentation's table of what each channel masks."""
    batch, heads = indices.shape[:2]
    hidden = torch.zeros(batch, heads, q_len, kv_len, dtype=torch.bool)
    for b in range(batch):
        for h in range(heads):
            for j in range(kv_len):
                bounds = indices[b, h, j].tolist()
                if len(bounds) == 1 or (len(bounds) == 2 and not causal):
                    intervals = [(bounds[0], q_len)] + ([(0, bounds[1])] if len(bounds) == 2 else [])
                else:
                    intervals = list(zip(bounds[::2], bounds[1::2]))
                for start, end in intervals:
                    hidden[b, h, max(start, 0):max(end, 0), j] = True
                if causal:
                    hidden[b, h, :max(j - (kv_len - q_len), 0), j] = True
    return hidden


def leaves(device, dtype=torch.float16, q_len=70, kv_len=70, heads=4, kv_heads=2, batch=2):
    shapes = ((batch, q_len, heads, 32), (batch, kv_len, kv_heads, 32), (batch, kv_len, kv_heads, 16))
    return [gapped(shape, dtype, device).detach().requires_grad_() for shape in shapes]


def some_indices(mask_heads, q_len, kv_len, bounds):
    """Random bounds of any order, rows behind the last one among them, and columns that hide all or nothing."""
    indices = torch.randint(0, q_len + 2, (2, mask_heads, kv_len, bounds), dtype=torch.int32)
    indices[:, :, 3] = torch.tensor([0, q_len, 0, q_len], dtype=torch.int32)[:bounds]
    indices[:, :, 5] = q_len + 1
    return indices


@pytest.mark.usefixtures("poisoned_results")
class TestValues:
    @pytest.mark.parametrize("causal, bounds", [(True, 1), (True, 2), (False, 2), (False, 4)])
    @pytest.mark.parametrize("mask_heads, q_len, kv_len", [(2, 33, 90), (4, 90, 61)])
    def test_of_indices(self, device, causal, bounds, mask_heads, q_len, kv_len):
        inputs = leaves(device, q_len=q_len, kv_len=kv_len)
        indices = some_indices(mask_heads, q_len, kv_len, bounds)
        got = flashmask_attention(*inputs, indices.to(device), causal=causal, return_softmax_lse=True)
        visible = ~hidden_by(indices, causal, q_len, kv_len).repeat_interleave(4 // mask_heads, dim=1)
        assert_same(inputs, got, lambda *exact: reference.attention(*exact, visible))

    def test_of_rows_that_see_nothing(self, device):
        inputs = leaves(device)
        indices = torch.full((2, 1, 70, 1), 50, dtype=torch.int32)
        out, lse = flashmask_attention(*inputs, indices.to(device), causal=True, return_softmax_lse=True)
        assert torch.all(out[:, 50:] == 0) and torch.all(lse[:, :, 50:] == -torch.inf)
        visible = ~hidden_by(indices, True, 70, 70)
        assert_same(inputs, (out, lse), lambda *exact: reference.attention(*exact, visible))

    @pytest.mark.parametrize("causal", [False, True])
    def test_without_indices(self, device, causal):
        inputs = leaves(device, q_len=40, kv_len=66)
        got = flashmask_attention(*inputs, causal=causal, return_softmax_lse=True, softmax_scale=0.3)
        q, k = torch.arange(40)[:, None], torch.arange(66)[None, :]
        visible = k <= q + 26 if causal else torch.tensor(True)
        assert_same(inputs, got, lambda *exact: reference.attention(*exact, visible, scale=0.3))

    @pytest.mark.parametrize("causal", [False, True])
    @pytest.mark.parametrize("window, left, right", [(5, 5, 5), ((9, 2), 9, 2)])
    def test_of_a_window(self, device, causal, window, left, right):
        """The documentation's own rewriting of a window into indices."""
        inputs = leaves(device)
        column = torch.arange(70)
        start, end = (column + left + 1).clamp(max=70), (column - right).clamp(min=0)
        indices = torch.stack([start] if causal else [start, end], dim=-1).int().expand(2, 1, 70, -1)
        got = flashmask_attention(*inputs, causal=causal, window_size=window, return_softmax_lse=True)
        visible = ~hidden_by(indices, causal, 70, 70)
        assert_same(inputs, got, lambda *exact: reference.attention(*exact, visible))

    def test_of_a_block_mask(self, device):
        inputs = leaves(device, q_len=300, kv_len=270)
        indices = some_indices(1, 300, 270, 2)
        block_mask = torch.randint(0, 2, (2, 2, 3, 3), dtype=torch.int32)
        got = flashmask_attention(*inputs, indices.to(device), return_softmax_lse=True, block_mask=block_mask.to(device))
        kept = block_mask.bool().repeat_interleave(128, 2).repeat_interleave(128, 3)[:, :, :300, :270]
        visible = (kept & ~hidden_by(indices, False, 300, 270)).repeat_interleave(2, dim=1)
        assert_same(inputs, got, lambda *exact: reference.attention(*exact, visible))

    def test_of_a_sink(self, device):
        inputs = [*leaves(device), torch.tensor([0.5, -1.0, 2.0, 0.0], device=device).requires_grad_()]
        indices = some_indices(1, 70, 70, 1)
        got = flashmask_attention(*inputs[:3], indices.to(device), causal=True, learnable_sink=inputs[3],
                                  return_softmax_lse=True)
        visible = ~hidden_by(indices, True, 70, 70)
        assert_same(inputs, got, lambda *exact: reference.attention(*exact[:3], visible, sink=exact[3]), units=64)


def test_one_result_is_no_list(device):
    query, key, value = leaves(device)
    indices = torch.full((2, 1, 70, 1), 70, dtype=torch.int32, device=device)
    assert isinstance(flashmask_attention(query, key, value, indices, causal=True), torch.Tensor)
    assert isinstance(flashmask_attention(query, key, value, indices, causal=True, return_softmax_lse=True), list)


def test_dropout_outside_training_is_none(device):
    query, key, value = leaves(device)
    out = flashmask_attention(query, key, value, dropout=0.5, training=False)
    assert torch.equal(out, flashmask_attention(query, key, value))


class TestRefusals:
    @pytest.mark.parametrize("name, value", [
        ("dropout", 0.1), ("return_seed_offset", True), ("fixed_seed_offset", torch.zeros(2)), ("rng_name", "local"),
        ("name", "attention"), ("group", object()),
    ])
    def test_of_what_is_not_served(self, name, value):
        with pytest.raises(UnsupportedError, match=name):
            flashmask_attention(*leaves("cpu"), **{name: value})

    @pytest.mark.parametrize("indices, causal, match", [
        (torch.zeros(2, 1, 70, 1, dtype=torch.int64), True, "torch.int32"),
        (torch.zeros(2, 70, 1, dtype=torch.int32), True, "shape"),
        (torch.zeros(1, 1, 70, 1, dtype=torch.int32), True, "shape"),
        (torch.zeros(2, 3, 70, 1, dtype=torch.int32), True, "shape"),
        (torch.zeros(2, 1, 69, 1, dtype=torch.int32), True, "shape"),
        (torch.zeros(2, 1, 70, 4, dtype=torch.int32), True, "shape"),
        (torch.zeros(2, 1, 70, 1, dtype=torch.int32), False, "shape"),
    ])
    def test_of_indices(self, indices, causal, match):
        with pytest.raises(BadArgumentError, match=match):
            flashmask_attention(*leaves("cpu"), indices, causal=causal)

    def test_of_arguments_that_exclude_one_another(self):
        indices = torch.zeros(2, 1, 70, 1, dtype=torch.int32)
        blocks = torch.ones(2, 1, 1, 1, dtype=torch.int32)
        with pytest.raises(BadArgumentError, match="window_size"):
            flashmask_attention(*leaves("cpu"), indices, causal=True, window_size=4)
        with pytest.raises(BadArgumentError, match="window_size"):
            flashmask_attention(*leaves("cpu"), window_size=-1)
        with pytest.raises(BadArgumentError, match="block_mask"):
            flashmask_attention(*leaves("cpu"), block_mask=blocks)
        with pytest.raises(BadArgumentError, match="block_mask"):
            flashmask_attention(*leaves("cpu"), indices, causal=True, block_mask=blocks[:1])
