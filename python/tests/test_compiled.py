"""What makes masks and scores inside a function of torch.compile stays in its graph, and the graph is guarded by what it depends on."""

import re

import pytest
import torch
from torch.nn.attention import flex_attention as torch_flex

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
    if isinstance(value, int):
        return value
    if isinstance(value, flex.BlockMask):
        return flex.BlockMask(value.mask.to(device), value.mask_mod, value.shape, value.BLOCK_SIZE)
    return value.to(device)


# By name: a function of [B, S, H, D] rows and of what it looks up.
LAYERS = {
    "a name": (lambda x: flashspan.attention(x, x, x, mask="window(left=9, right=0)"),),
    "a text": (lambda x, doc: flashspan.attention(x, x, x, mask=flashspan.Mask("doc[q] == doc[k]", doc=doc)), DOC),
    "builders": (lambda x, doc, ends: flashspan.attention(
        x, x, x, mask=masks.causal_document(doc) & masks.dilated_window(9, 2) | masks.flashmask(ends, causal=True)), DOC, ENDS),
    "masks that are given": (lambda x, mask, other: flashspan.attention(x, x, x, mask=mask & other.inverse() | masks.window(0, 0)),
                             masks.causal_document(DOC), masks.document(DOC[::8].repeat(8))),
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
    "a window of a number": (lambda x, left: flash_attn.flash_attn_func(x, x, x, window_size=(left, 2), softcap=left / 2), 9),
}


class Graphs:
    """A compiler back end that runs graphs as they are."""

    def __init__(self):
        self._operators = {}
        torch.compiler.reset()

    @property
    def operators(self):
        """How many of our operators each graph has that was run; some are compiled in vain."""
        return list(self._operators.values())

    def __call__(self, graph, inputs):
        from torch._dynamo.backends.debugging import aot_eager

        compiled = aot_eager(graph, inputs)

        def run(*arguments):
            self._operators[run] = sum(node.target is torch.ops.flashspan.attention.default for node in graph.graph.nodes)
            return compiled(*arguments)
        return run


@pytest.mark.parametrize("dynamic", [None, True], ids=["static", "dynamic"])
@pytest.mark.parametrize("name", LAYERS)
def test_one_graph_holds_it(device, name, dynamic):
    layer, *looked_up = LAYERS[name]
    looked_up = [moved(value, device) for value in looked_up]
    graphs = Graphs()
    compiled = torch.compile(layer, fullgraph=True, backend=graphs, dynamic=dynamic)
    x = torch.randn(1, 64, 2, 32, device=device).half().requires_grad_()
    got, wanted = compiled(x, *looked_up), layer(x, *looked_up)
    assert_close(got, wanted, torch.float16, units=1)
    weights = torch.randn_like(wanted)
    assert_close(*(torch.autograd.grad(out, x, weights)[0] for out in (got, wanted)), torch.float16)
    assert graphs.operators == [1]


WIDTH = 7
LIMITS = torch.tensor([[50, 40]])


def near(q, k):
    def inside(distance):
        return distance < WIDTH
    return inside(q - k)


def documents_of(length, reach, table=LIMITS):
    doc = (torch.arange(64) // length).int()
    return torch_flex.or_masks(lambda b, h, q, k: (doc[q] == doc[k]) & (q - k < reach) & near(q, k), lambda b, h, q, k: k >= table[0 * h, -1])


def _by_default(width):
    return lambda b, h, q, k, width=width: q - k < width


def _by_keyword(width):
    def mask_mod(b, h, q, k, *, width=width):
        return q - k < width
    return mask_mod


def _by_list(width):
    widths = [width, 3]
    return lambda b, h, q, k: q - k < widths[0]


def _by_function(width):
    inner = _by_default(width)
    return lambda b, h, q, k: inner(b, h, q, k)


def _by_another_function(width):
    inside = (lambda distance: distance < 4) if width < 5 else (lambda distance: distance < 9)
    return lambda b, h, q, k: inside(q - k)


def _by_real(width):
    half = width * 0.5
    return lambda b, h, q, k: (q - k) * 0.5 < half


def _by_truth(width):
    is_wide = width > 4
    return lambda b, h, q, k: q - k < (9 if is_wide else 4)


def _by_tensor(width):
    tile = torch.arange(64) // width
    return lambda b, h, q, k, tile=tile: tile[q] == tile[k]


def _by_dtype(width):
    tile = (torch.arange(64) / width).to(torch.int32 if width < 5 else torch.float32)
    return lambda b, h, q, k: tile[q] == tile[k]


class TestACallable:
    """A callable that was made outside of the compiled function is traced beside the compiler."""

    def compare(self, *calls, layer=None, dynamic=None):
        """Of calls of other documents, numbers, ..., all in one graph each, how many graphs there are."""
        def flex_layer(x, block_mask, score_mod=None):
            return 2 * flex.flex_attention(x, x, x, block_mask=block_mask, score_mod=score_mod)

        graphs = Graphs()
        layer = layer or flex_layer
        compiled = torch.compile(layer, fullgraph=True, backend=graphs, dynamic=dynamic)
        x = torch.randn(1, 2, 64, 16)
        for call in calls:
            assert torch.equal(compiled(x, *call), layer(x, *call))
        assert set(graphs.operators) == {1}
        return len(graphs.operators)

    def block_mask(self, *of):
        return torch_flex.create_block_mask(documents_of(*of), None, None, 64, 64, device="cpu")

    @pytest.mark.parametrize("dynamic", [None, True])
    def test_of_a_block_mask_of_torch_reads_other_documents_in_the_same_graph(self, cpu, dynamic):
        assert self.compare(*[(self.block_mask(length, 6),) for length in (9, 5, 13, 64)], dynamic=dynamic) == 1

    def test_of_another_number_is_another_graph(self, cpu):
        calls = [(self.block_mask(16, reach),) for reach in (3, 9, 1, 5, 9, 3)]
        assert self.compare(*calls) >= 4

    @pytest.mark.parametrize("dynamic", [None, True])
    @pytest.mark.parametrize("made", [_by_default, _by_keyword, _by_list, _by_function, _by_another_function, _by_real, _by_truth,
                                      _by_tensor, _by_dtype], ids=lambda made: made.__name__ if callable(made) else "")
    def test_is_never_taken_for_another_of_the_same_code(self, cpu, made, dynamic):
        def layer(x, mask_mod):
            return flashspan.attention(x, x, x, mask=flashspan.Mask(mask_mod), layout="bhsd")

        compiled = torch.compile(layer, fullgraph=True, backend=Graphs(), dynamic=dynamic)
        x = torch.randn(1, 2, 64, 16)
        for mask_mod in (made(3), made(4), made(9), made(3)):
            assert torch.equal(compiled(x, mask_mod), layer(x, mask_mod))

    def test_of_another_global_number_is_another_graph(self, cpu, monkeypatch):
        graphs = Graphs()
        mask = self.block_mask(64, 64)
        compiled = torch.compile(lambda x: flex.flex_attention(x, x, x, block_mask=mask), fullgraph=True, backend=graphs)
        x = torch.randn(1, 2, 64, 16)
        for width in (7, 3, 12):
            monkeypatch.setitem(globals(), "WIDTH", width)
            assert torch.equal(compiled(x), flex.flex_attention(x, x, x, block_mask=mask))
        assert graphs.operators == [1, 1, 1]

    def test_of_another_size_that_it_uses_is_another_graph(self, cpu):
        calls = [(self.block_mask(64, 4, torch.tensor([limits])),) for limits in ([50, 40], [3, 60, 20], [1, 2, 3, 30])]
        assert self.compare(*calls, dynamic=True) == 3

    def test_is_a_score_as_well(self, cpu):
        def score_of(cap):
            table = torch.randn(2, 64)
            return lambda score, b, h, q, k: cap * torch.tanh(score / cap) + table[h, q - k]

        block_mask = self.block_mask(64, 64)
        assert self.compare(*[(block_mask, score_of(cap)) for cap in (3.0, 3.0, 5.0, 2.0)]) >= 3

    def test_gradients_reach_what_a_score_captures(self, cpu):
        table = torch.randn(64).requires_grad_()
        x = torch.randn(1, 2, 64, 16)

        def loss(x, score_mod):
            return flex.flex_attention(x, x, x, score_mod=score_mod).square().sum()

        def score_mod(score, b, h, q, k):
            return score + table[q - k]

        wanted, = torch.autograd.grad(loss(x, score_mod), table)
        got, = torch.autograd.grad(torch.compile(loss, fullgraph=True, backend="aot_eager")(x, score_mod), table)
        assert_close(got, wanted, torch.float32)

    def test_takes_tensors_and_numbers_by_keyword(self, cpu):
        def inside(b, h, q, k, doc, reach):
            return (doc[q] == doc[k]) & (q - k < reach)

        def layer(x, doc, reach):
            return flashspan.attention(x, x, x, layout="bhsd", mask=flashspan.Mask(inside, doc=doc, reach=reach))

        self.compare(*[(torch.arange(64) // length, reach) for length, reach in ((9, 5), (13, 5), (13, 2), (13, 8))], layer=layer)

    def test_combines_with_other_masks(self, cpu):
        mask_mod = documents_of(20, 64)

        def layer(x, doc):
            mask = flashspan.Mask(mask_mod) & masks.document(doc).inverse() | masks.window(0, 0)
            return flashspan.attention(x, x, x, layout="bhsd", mask=mask)

        assert self.compare((torch.arange(64) // 7,), (torch.arange(64) // 3,), layer=layer) == 1


class Holder:
    width = 3

    def mask_mod(self, b, h, q, k):
        return q - k < self.width


LENGTHS = torch.tensor([3, 9])
REFUSED = {
    "made inside": (lambda x: flashspan.attention(x, x, x, mask=lambda b, h, q, k: q >= k), "made inside"),
    "an object": (lambda x: flashspan.attention(x, x, x, mask=Holder().mask_mod), "captures more than tensors"),
    "a value on the host": (lambda x: flashspan.attention(x, x, x, mask=_of_an_item), "more than lookups.*item"),
    "a size": (lambda x: flashspan.attention(x, x, x, mask=_of_a_size), "more than lookups.*__get__"),
    "a tensor of its own": (lambda x: flashspan.attention(x, x, x, mask=_of_a_new_tensor), "more than lookups.*add"),
}


def _of_an_item(b, h, q, k):
    return q - k < LENGTHS[0].item()


def _of_a_size(b, h, q, k):
    return q - k < LENGTHS.shape[0]


def _of_a_new_tensor(b, h, q, k):
    return (LENGTHS + 1)[0] > q - k


@pytest.mark.usefixtures("cpu")
@pytest.mark.parametrize("name", REFUSED)
class TestWhatWouldBeFixedInAGraph:
    def test_says_where_it_should_be_made(self, name):
        layer, why = REFUSED[name]
        x = torch.randn(1, 16, 1, 16)
        with pytest.raises(torch._dynamo.exc.Unsupported, match="make its Mask or Score outside of the compiled function") as caught:
            torch.compile(layer, fullgraph=True, backend="eager")(x)
        assert re.search(why, str(caught.value))

    def test_breaks_a_graph_that_may_break(self, name):
        layer, _ = REFUSED[name]
        x = torch.randn(1, 16, 1, 16)
        assert torch.equal(torch.compile(lambda x: 2 * layer(x + 1), backend="eager")(x), 2 * layer(x + 1))


@pytest.mark.parametrize("text", ["q >= k", "q \\\n >= k", "where(q > k, q, k) == \"q\"", "\t q", "ä ≥ k"])
@pytest.mark.parametrize("scalar", [0, -3, 2**40, 0.1, 1e-300, float("inf"), True])
def test_descriptions_are_read_as_they_were_written(text, scalar):
    from flashspan.program import _written, read

    node = {"and": [{"text": text, "tensors": [], "scalars": {"w": scalar}}, {"builder": "x", "options": (1, None)}]}
    assert read(_written(node)) == {"and": [{"text": text, "tensors": [], "scalars": {"w": scalar}},
                                            {"builder": "x", "options": [1, None]}]}
