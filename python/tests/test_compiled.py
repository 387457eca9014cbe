"""What makes masks and scores inside a function of torch.compile stays in its graph; a callable says where it should be made."""

import pytest
import torch

import flashspan
from conftest import assert_close
from flashspan import masks
from flashspan.compat import flash_attn, flashmask, flex, scfa

DOC = torch.tensor([0] * 20 + [1] * 44, dtype=torch.int32)
ENDS = torch.tensor([20] * 20 + [64] * 44, dtype=torch.int32).reshape(1, 1, 64, 1)
BUCKETS = torch.arange(128, dtype=torch.int32).reshape(1, 64, 2) * 7 % 5
STARTS = torch.tensor([0, 20, 64], dtype=torch.int32)
SLOPES = torch.tensor([0.25, 0.5])
BLOCK_MASK = flex.create_block_mask(lambda b, h, q, k: (q >= k) & (DOC[q] == DOC[k]), None, None, 64, 64)
ALIBI = flashspan.Score(lambda score, b, h, q, k: score + SLOPES[h] * (k - q))


def moved(value, device):
    if isinstance(value, flex.BlockMask):
        return flex.BlockMask(value.mask.to(device), value.mask_mod, value.shape, value.BLOCK_SIZE)
    return value.to(device)


# By name: a function of [B, S, H, D] rows and of what it looks up.
LAYERS = {
    "a name": (lambda x: flashspan.attention(x, x, x, mask="window(left=9, right=0)"),),
    "a text": (lambda x, doc: flashspan.attention(x, x, x, mask=flashspan.Mask("doc[q] == doc[k]", doc=doc)), DOC),
    "builders": (lambda x, doc, ends: flashspan.attention(
        x, x, x, mask=masks.causal_document(doc) & masks.dilated_window(9, 2) | masks.flashmask(ends, causal=True)), DOC, ENDS),
    "flash_attn_func": (lambda x, slopes: flash_attn.flash_attn_func(
        x, x, x, causal=True, window_size=(16, 0), softcap=10.0, alibi_slopes=slopes), SLOPES),
    "flash_attn_varlen_func": (lambda x, starts: flash_attn.flash_attn_varlen_func(
        x[0], x[0], x[0], starts, starts, 44, 44, causal=True), STARTS),
    "flashmask_attention": (lambda x, ends: flashmask.flashmask_attention(x, x, x, ends, causal=True), ENDS),
    "hash_sparse_attention": (lambda x, buckets: scfa.hash_sparse_attention(x, x, x, buckets, buckets), BUCKETS),
    "qk_sparse_attention": (lambda x, buckets: scfa.qk_sparse_attention(
        x, x, x, (buckets > 1).float(), (buckets > 2).float()), BUCKETS),
    "flex_attention": (lambda x, block_mask, score: flex.flex_attention(
        *[x.transpose(1, 2)] * 3, score_mod=score, block_mask=block_mask), BLOCK_MASK, ALIBI),
}


def operators_in(graph):
    return sum(node.target is torch.ops.flashspan.attention.default for node in graph.graph.nodes)


@pytest.mark.parametrize("name", LAYERS)
def test_one_graph_holds_it(device, name):
    layer, *looked_up = LAYERS[name]
    looked_up = [moved(value, device) for value in looked_up]
    graphs = []

    def backend(graph, inputs):
        from torch._dynamo.backends.debugging import aot_eager

        graphs.append(operators_in(graph))
        return aot_eager(graph, inputs)

    torch.compiler.reset()
    compiled = torch.compile(layer, fullgraph=True, backend=backend)
    x = torch.randn(1, 64, 2, 32, device=device).half().requires_grad_()
    got, wanted = compiled(x, *looked_up), layer(x, *looked_up)
    assert_close(got, wanted, torch.float16, units=1)
    weights = torch.randn_like(wanted)
    assert_close(*(torch.autograd.grad(out, x, weights)[0] for out in (got, wanted)), torch.float16)
    assert graphs == [1]


def test_a_callable_inside_says_where_it_should_be_made():
    def layer(x):
        return flashspan.attention(x, x, x, mask=lambda b, h, q, k: q >= k)

    x = torch.randn(1, 16, 1, 16)
    with pytest.raises(torch._dynamo.exc.Unsupported, match="make its Mask or Score outside of the compiled function"):
        torch.compile(layer, fullgraph=True, backend="eager")(x)


@pytest.mark.usefixtures("cpu")
def test_a_callable_inside_breaks_a_graph_that_may_break():
    def layer(x):
        return 2 * flashspan.attention(x + 1, x, x, mask=lambda b, h, q, k: q >= k)

    x = torch.randn(1, 16, 1, 16)
    assert torch.equal(torch.compile(layer, backend="eager")(x), layer(x))


@pytest.mark.parametrize("text", ["q >= k", "q \\\n >= k", "where(q > k, q, k) == \"q\"", "\t q", "ä ≥ k"])
@pytest.mark.parametrize("scalar", [0, -3, 2**40, 0.1, 1e-300, float("inf"), True])
def test_descriptions_are_read_as_they_were_written(text, scalar):
    from flashspan.program import _written, read

    node = {"and": [{"text": text, "tensors": [], "scalars": {"w": scalar}}, {"builder": "x", "options": (1, None)}]}
    assert read(_written(node)) == {"and": [{"text": text, "tensors": [], "scalars": {"w": scalar}},
                                            {"builder": "x", "options": [1, None]}]}
