"""flashspan.compat.flex against FlexAttention's definition, mapped over every pair."""

import inspect

import pytest
import torch
from torch.nn.attention import flex_attention as torch_flex

import reference
from compat_reference import assert_same
from conftest import gapped
from flashspan import BadArgumentError, TraceError, UnsupportedError
from flashspan.compat.flex import create_block_mask, flex_attention


def leaves(device, q_len=61, kv_len=90, heads=4, kv_heads=2, batch=2, kv_batch=2):
    shapes = ((batch, heads, q_len, 32), (kv_batch, kv_heads, kv_len, 32), (kv_batch, kv_heads, kv_len, 16))
    return [gapped(shape, torch.float16, device).detach().requires_grad_() for shape in shapes]


def wanted_of(visible=None, score_mod=None, scale=None):
    def dense(query, key, value):
        key, value = (tensor.expand(query.shape[0], -1, -1, -1) for tensor in (key, value))
        out, lse = reference.attention(*(tensor.transpose(1, 2) for tensor in (query, key, value)), visible, score_mod, scale)
        return out.transpose(1, 2), lse
    return dense


DOC = torch.tensor([0] * 20 + [1] * 33 + [2] * 47, dtype=torch.int32)


def document_with_gaps(doc):
    """Heads and batch entries differ, and some queries see nothing."""
    return lambda b, h, q, k: (doc[q] == doc[k]) & (q + 3 * h >= k) & (q % 7 != b)


@pytest.mark.usefixtures("poisoned_results")
class TestValues:
    def test_without_mods(self, device):
        inputs = leaves(device)
        got = flex_attention(*inputs, scale=0.25, enable_gqa=True, return_lse=True, kernel_options={"BLOCK_M": 32})
        assert_same(inputs, got, wanted_of(scale=0.25))

    def test_of_a_mask_mod(self, device):
        inputs = leaves(device)
        block_mask = create_block_mask(document_with_gaps(DOC.to(device)), 2, 4, 61, 90, device=device)
        got = flex_attention(*inputs, block_mask=block_mask, enable_gqa=True, return_lse=True)
        visible = reference.dense_mask(document_with_gaps(DOC), 2, 4, 61, 90)
        assert_same(inputs, got, wanted_of(visible))

    def test_of_both_mods(self, device):
        slopes = torch.tensor([0.5, 0.25, 0.125, 0.0625])

        def alibi(slopes):
            return lambda score, b, h, q, k: 5 * torch.tanh(score / 5) + slopes[h] * (k - q)

        inputs = leaves(device, kv_heads=4)
        block_mask = create_block_mask(lambda b, h, q, k: q >= k, None, None, 61, 90)
        got = flex_attention(*inputs, score_mod=alibi(slopes.to(device)), block_mask=block_mask, return_lse=True)
        visible = reference.dense_mask(lambda b, h, q, k: q >= k, 1, 1, 61, 90)
        assert_same(inputs, got, wanted_of(visible, alibi(slopes)), units=64)

    def test_of_a_block_mask_of_torch(self, device):
        inputs = leaves(device)
        block_mask = torch_flex.create_block_mask(document_with_gaps(DOC.to(device)), 2, 4, 61, 90, device=device,
                                                  BLOCK_SIZE=32)
        got = flex_attention(*inputs, block_mask=block_mask, enable_gqa=True, return_lse=True)
        assert_same(inputs, got, wanted_of(reference.dense_mask(document_with_gaps(DOC), 2, 4, 61, 90)))

    def test_of_the_block_lists_of_torch(self, device):
        """Partial blocks and full ones, rows of none, and lists whose ends are undefined."""
        inputs = leaves(device)
        partial = torch.tensor([[[1, 0]]]), torch.tensor([[[[2, 7, 7], [9, 9, 9]]]])
        full = torch.tensor([[[1, 0]]]), torch.tensor([[[[0, 7, 7], [9, 9, 9]]]])
        block_mask = torch_flex.BlockMask.from_kv_blocks(
            *(tensor.int().to(device) for tensor in (*partial, *full)), BLOCK_SIZE=(32, 32), seq_lengths=(61, 90),
            compute_q_blocks=False)
        got = flex_attention(*inputs, block_mask=block_mask, enable_gqa=True, return_lse=True)
        visible = torch.zeros(61, 90, dtype=torch.bool)
        visible[:32, :32] = visible[:32, 64:] = True
        assert_same(inputs, got, wanted_of(visible))

    def test_of_block_lists_that_hide_more_than_their_mask_mod(self, device):
        """A mask_mod counts inside partial blocks alone: not in full ones, nor in those of no list."""
        inputs = leaves(device)
        partial = torch.tensor([[[1, 1]]]), torch.tensor([[[[0, 7, 7], [1, 9, 9]]]])
        full = torch.tensor([[[1, 0]]]), torch.tensor([[[[2, 7, 7], [9, 9, 9]]]])
        block_mask = torch_flex.BlockMask.from_kv_blocks(
            *(tensor.int().to(device) for tensor in (*partial, *full)), BLOCK_SIZE=(32, 32), seq_lengths=(61, 90),
            compute_q_blocks=False, mask_mod=lambda b, h, q, k: q >= k)
        got = flex_attention(*inputs, block_mask=block_mask, enable_gqa=True, return_lse=True)
        causal = torch.arange(61)[:, None] >= torch.arange(90)
        visible = torch.zeros(61, 90, dtype=torch.bool)
        visible[:32, :32] = causal[:32, :32]
        visible[:32, 64:] = True
        visible[32:, 32:64] = causal[32:, 32:64]
        assert_same(inputs, got, wanted_of(visible))

    def test_keys_of_one_batch_entry_serve_all(self, device):
        inputs = leaves(device, kv_batch=1)
        block_mask = create_block_mask(lambda b, h, q, k: (q + b) >= k, 2, None, 61, 90)
        got = flex_attention(*inputs, block_mask=block_mask, enable_gqa=True, return_lse=True)
        assert_same(inputs, got, wanted_of(reference.dense_mask(lambda b, h, q, k: (q + b) >= k, 2, 1, 61, 90)), units=32)


@pytest.mark.parametrize("ours, theirs", [(flex_attention, torch_flex.flex_attention),
                                          (create_block_mask, torch_flex.create_block_mask)], ids=["attention", "mask"])
def test_every_argument_of_torch_is_taken_in_its_place(ours, theirs):
    def arguments_of(function):
        return [(name, argument.kind, argument.default) for name, argument in inspect.signature(function).parameters.items()]

    assert arguments_of(ours) == arguments_of(theirs)


def test_the_results_that_are_asked_for(device):
    inputs = leaves(device, kv_heads=4)
    out, lse = flex_attention(*inputs, return_lse=True)
    assert torch.equal(flex_attention(*inputs), out)
    again, auxiliary = flex_attention(*inputs, return_aux=torch_flex.AuxRequest(lse=True))
    assert torch.equal(again, out) and torch.equal(auxiliary.lse, lse) and auxiliary.max_scores is None


class TestRefusals:
    def test_of_sizes(self):
        with pytest.raises(BadArgumentError, match="enable_gqa"):
            flex_attention(*leaves("cpu"))
        for sizes in ((None, None, 60, 90), (None, None, 61, 128), (3, None, 61, 90), (None, 2, 61, 90)):
            with pytest.raises(BadArgumentError, match="block_mask"):
                flex_attention(*leaves("cpu"), enable_gqa=True,
                               block_mask=create_block_mask(lambda b, h, q, k: q >= k, *sizes))
        with pytest.raises(BadArgumentError, match="key"):
            flex_attention(*leaves("cpu", kv_batch=1), enable_gqa=True,
                           block_mask=create_block_mask(lambda b, h, q, k: q >= k, None, None, 61, 90))

    def test_of_what_is_not_served(self):
        with pytest.raises(UnsupportedError, match="max_scores"):
            flex_attention(*leaves("cpu", kv_heads=4), return_aux=torch_flex.AuxRequest(max_scores=True))
        with pytest.raises(TraceError):
            create_block_mask(lambda b, h, q, k: True if q > k else False, None, None, 61, 90)

    def test_of_a_sliced_block_mask_of_torch(self):
        block_mask = torch_flex.create_block_mask(lambda b, h, q, k: q >= k, 2, 4, 61, 61, device="cpu")[:1]
        with pytest.raises(RuntimeError, match="sliced"):
            flex_attention(*leaves("cpu", kv_len=61), block_mask=block_mask, enable_gqa=True)
