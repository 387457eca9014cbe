"""flashspan.attention is an operator of torch: for its compiler, its graphs, its transforms of precision."""

import pickle
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

import flashspan
import reference
from flashspan import calls, torch_ops
from conftest import assert_close


def inputs_of(device, with_sink=True, **options):
    """Arguments of the operator itself."""
    query = torch.randn(2, 24, 4, 16, device=device).half().requires_grad_()
    key, value = (torch.randn(2, 24, 2, 16, device=device).half().requires_grad_() for _ in range(2))
    sink = torch.zeros(4, device=device).requires_grad_() if with_sink else None
    mask = flashspan.masks.causal_document(torch.arange(24, device=device) // 9)
    score = flashspan.Score("score + bias[h, q - k + 24]", bias=torch.randn(4, 48, device=device).requires_grad_())
    return torch_ops._inputs(query, key, value, mask, score, None, "bshd", False, sink)


@pytest.mark.parametrize("with_sink", [True, False])
def test_torch_finds_the_operator_in_order(device, with_sink):
    torch.library.opcheck(torch.ops.flashspan.attention.default, inputs_of(device, with_sink),
                          atol=2e-3, rtol=2e-3)


BLOCKS = torch.tensor([[[2, 1, 3]]]), torch.tensor([[[[0, 2, 0], [1, 0, 0], [0, 1, 2]]]])
POSITIONS = torch.arange(24).reshape(1, 1, 24)
FORMS = {
    "a text": flashspan.Mask("q - k < width", width=5),
    "ranges": flashspan.masks.key_ranges(torch.tensor([3, 17]).expand(1, 1, 24, 1, 2)),
    "slices": flashspan.masks.slices([[0, 24]], [[0, 20]], [1]),
    "FlashMask's": flashspan.masks.flashmask(torch.full((2, 1, 24, 1), 20), causal=True),
    "FlexAttention's": flashspan.masks.block_list(*BLOCKS, 8, 8, predicate=flashspan.masks.causal()),
    "SCFA's": flashspan.masks.scfa_hash(POSITIONS, POSITIONS, POSITIONS % 3, POSITIONS % 3) & ~flashspan.masks.window(0, 0),
}


@pytest.mark.parametrize("form", FORMS)
def test_torch_finds_the_operator_in_order_for_every_form_of_mask(device, form):
    query = torch.randn(2, 4, 24, 16, device=device).half().requires_grad_()
    key, value = (torch.randn(2, 2, 24, 16, device=device).half().requires_grad_() for _ in range(2))
    inputs = torch_ops._inputs(query, key, value, FORMS[form].to(device), None, 0.3, "bhsd", True, None)
    torch.library.opcheck(torch.ops.flashspan.attention.default, inputs, atol=2e-3, rtol=2e-3)


def test_torch_finds_the_backward_operator_in_order(device):
    query, key, value, sink, *programs, scale, layout, deterministic, tile, backward_tile = (
        argument.detach() if isinstance(argument, torch.Tensor) else argument for argument in inputs_of(device))
    programs[3] = [tensor.detach() for tensor in programs[3]]
    out, lse = torch.ops.flashspan.attention(query, key, value, sink, *programs, scale, layout, deterministic, tile,
                                             backward_tile)
    torch.library.opcheck(
        torch.ops.flashspan.attention_backward.default,
        (torch.randn_like(out), torch.randn_like(lse), query, key, value, sink, out, lse, *programs, [True], scale,
         layout, deterministic, backward_tile),
        atol=2e-3, rtol=2e-3)


class Counted:
    """A compiler back end that counts graphs and the operator's nodes in them, and runs them as they are."""

    def __init__(self):
        self.graphs = self.nodes = 0

    def __call__(self, graph, inputs):
        self.graphs += 1
        self.nodes += sum(node.target is torch.ops.flashspan.attention.default for node in graph.graph.nodes)
        from torch._dynamo.backends.debugging import aot_eager

        return aot_eager(graph, inputs)


def test_the_compiler_keeps_one_node_for_every_length(device):
    doc = torch.arange(100, device=device) // 10
    mask = flashspan.Mask(lambda b, h, q, k: (q >= k) & (doc[q] == doc[k]))
    score = flashspan.Score("score - 0.1 * abs(q - k)")
    counted = Counted()

    def layer(query, key, value):
        return 2 * flashspan.attention(query, key, value + 1, mask=mask, score=score)

    compiled = torch.compile(layer, fullgraph=True, dynamic=True, backend=counted)
    for length in (64, 40, 33):
        tensors = [torch.randn(2, length, 2, 16, device=device).half().requires_grad_() for _ in range(3)]
        wanted = layer(*tensors)
        got = compiled(*tensors)
        assert torch.equal(got, wanted)
        gradient = torch.randn_like(got)
        for ours, theirs in zip(torch.autograd.grad(got, tensors, gradient), torch.autograd.grad(wanted, tensors, gradient)):
            assert_close(ours, theirs, torch.float16)
    assert counted.graphs == 1 and counted.nodes == 1


def test_the_compiler_sees_new_values_of_looked_up_tensors(device):
    doc = torch.zeros(20, dtype=torch.int32, device=device)
    mask = flashspan.masks.document(doc)
    query = torch.randn(1, 20, 1, 16, device=device).half()
    compiled = torch.compile(lambda query: flashspan.attention(query, query, query, mask=mask), fullgraph=True,
                             backend="aot_eager")
    compiled(query)
    doc.copy_(torch.arange(20) // 4)
    assert torch.equal(compiled(query), flashspan.attention(query, query, query, mask="q // 4 == k // 4"))


def test_the_default_compiler(device):
    mask = flashspan.masks.causal()
    query = torch.randn(1, 48, 2, 32, device=device).half().requires_grad_()

    def layer(query):
        return flashspan.attention(query, query, query * 2, mask=mask).float().square().sum()

    got, = torch.autograd.grad(torch.compile(layer, fullgraph=True)(query), query)
    wanted, = torch.autograd.grad(layer(query), query)
    assert_close(got, wanted, torch.float16, units=8)


def test_the_way_without_the_dispatcher_gives_the_same_bits(device):
    arguments = inputs_of(device)
    options = dict(mask=flashspan.masks.causal_document(torch.arange(24, device=device) // 9),
                   score=flashspan.Score("score + bias[h, q - k + 24]", bias=arguments[7][0]))
    query, key, value, sink = arguments[:4]
    direct = flashspan.attention(query, key, value, sink=sink, return_lse=True, **options)
    through = torch.ops.flashspan.attention(*arguments)
    gradient = torch.randn_like(direct[0])
    for left, right in zip(direct, through):
        assert torch.equal(left, right)
    tensors = (query, key, value, sink, arguments[7][0])
    for left, right in zip(torch.autograd.grad(direct[0], tensors, gradient), torch.autograd.grad(through[0], tensors, gradient)):
        assert_close(left, right, torch.float16)


def test_autocast_chooses_the_dtype(device):
    query = torch.randn(1, 20, 2, 16, device=device)
    with torch.autocast(device, dtype=torch.bfloat16):
        out = flashspan.attention(query, query, query)
    assert out.dtype == torch.bfloat16
    assert torch.equal(out, flashspan.attention(*[query.bfloat16()] * 3))


def test_fake_tensors_have_the_shapes_of_results():
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        query, value = torch.empty(2, 7, 4, 16), torch.empty(2, 9, 2, 24)
        out, lse = flashspan.attention(query, value[..., :16], value, return_lse=True)
    assert out.shape == (2, 7, 4, 24) and lse.shape == (2, 4, 7) and lse.dtype == torch.float32


def test_a_cuda_graph_replays_on_new_values(cuda):
    doc = (torch.arange(96, device=cuda) // 30).int()
    mask = flashspan.masks.causal_document(doc)
    tensors = [torch.randn(1, 96, 2, 64, device=cuda).half().requires_grad_() for _ in range(3)]
    gradient = torch.randn(1, 96, 2, 64, device=cuda).half()

    def step():
        out = flashspan.attention(*tensors, mask=mask)
        return (out, *torch.autograd.grad(out, tensors, gradient))

    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        step()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        results = step()
    with torch.no_grad():
        for tensor in tensors:
            tensor.copy_(torch.randn_like(tensor))
        doc.copy_(torch.arange(96, device=cuda) // 17)
    graph.replay()
    for replayed, wanted in zip(results, step()):
        assert_close(replayed, wanted, torch.float16)


def test_the_compiler_with_cuda_graphs(cuda):
    mask = flashspan.masks.causal()
    query = torch.randn(1, 64, 2, 64, device=cuda).half()
    compiled = torch.compile(lambda query: flashspan.attention(query, query, query, mask=mask) + 1, fullgraph=True,
                             mode="reduce-overhead")
    for _ in range(4):
        query = torch.randn_like(query)
        assert torch.equal(compiled(query), flashspan.attention(query, query, query, mask=mask) + 1)


def test_prepared_calls_compile_nothing(device):
    query, key = torch.randn(2, 30, 2, 40, device=device).half(), torch.randn(2, 30, 1, 40, device=device).half()
    call = dict(query=query, key=key, value=key, mask="(q - k) % 3 == 0", sink=torch.zeros(2, device=device))
    records = flashspan.prepare([call])
    assert [record["spec"].split()[0] for record in records] == ["forward", "backward"]
    assert all(record["outcome"] in ("built", "disk") and record["spill_bytes"] == 0 for record in records)
    assert [record["outcome"] for record in flashspan.prepare([call])] == ["loaded", "loaded"]


class TestTheFirstDifferentiableCall:
    def call(self, device, number, requires_grad=True):
        query = torch.randn(1, 30, 1, 24, device=device).half().requires_grad_(requires_grad)
        bias = torch.zeros(40, device=device).requires_grad_(requires_grad)
        score = flashspan.Score("score + bias[abs(q - k)]", bias=bias)
        return dict(query=query, key=query, value=query, mask=f"(q - k) % {number} != 2", score=score)

    def outcomes(self, call):
        return [record["outcome"] for record in flashspan.prepare([call])]

    def test_compiles_the_backward_beside_the_forward(self, device):
        call = self.call(device, 17)
        flashspan.attention(**call)
        assert self.outcomes(call) == ["loaded", "loaded"]

    def test_leaves_the_backward_alone_where_nothing_takes_a_gradient(self, device):
        with torch.no_grad():
            flashspan.attention(**self.call(device, 19))
        assert self.outcomes(self.call(device, 19)) == ["loaded", "built"]

    def test_is_the_only_one_that_compiles_ahead(self, device, monkeypatch):
        described = []
        make = torch_ops._expected_backward_call
        monkeypatch.setattr(torch_ops, "_expected_backward_call", lambda *inputs: described.append(inputs) or make(*inputs))
        call = self.call(device, 23)
        for _ in range(3):
            flashspan.attention(**call)
        longer = torch.randn(1, 39, 1, 24, device=device).half().requires_grad_()
        flashspan.attention(**{**call, "query": longer, "key": longer, "value": longer})
        assert len(described) == 1

    def test_runs_even_if_the_backward_cannot_be_compiled(self, device, monkeypatch):
        def refused(*_):
            raise flashspan.UnsupportedError("attention", "a backward", "forwards")

        monkeypatch.setattr(calls, "backward", refused)
        out = flashspan.attention(**self.call(device, 29))
        with pytest.raises(flashspan.UnsupportedError):
            out.sum().backward()


class TestAPlanThatIsKept:
    """Of a mask whose values do not change, tiles are planned by the first call of a thread and stream."""

    @pytest.fixture(autouse=True)
    def none_kept(self):
        calls.forget_all()

    def call(self, device, mask="causal", length=40):
        query = torch.randn(1, length, 2, 32, device=device).half()
        return flashspan.attention(query, query, query, mask=mask), query

    def test_serves_the_next_calls(self, device):
        mask = flashspan.Mask("(q >= k) & (q - k < width)", width=9)
        kept = []
        for _ in range(3):
            got, query = self.call(device, mask)
            kept.append(list(calls._plans.values()))
            wanted = flashspan.attention(query, query, query, mask=flashspan.masks.causal_window(8))
            assert torch.equal(got, wanted)
        assert kept[0][0][1].made and kept[2][0] is kept[0][0]

    def test_serves_the_next_backward(self, device):
        mask = flashspan.masks.causal_document(torch.arange(40, device=device) // 9).fixed()
        kept = []
        for _ in range(3):
            query, gradient = (torch.randn(1, 40, 2, 32, device=device).half() for _ in range(2))
            query.requires_grad_()
            got, = torch.autograd.grad(flashspan.attention(query, query, query, mask=mask), query, gradient)
            kept.append(list(calls._plans.values()))
            anew = flashspan.attention(query, query, query, mask="(q // 9 == k // 9) & (q >= k)", deterministic=True)
            assert_close(got, torch.autograd.grad(anew, query, gradient)[0], torch.float16)
        assert len(kept[0]) == 2 and all(plan.made for _, plan in kept[0])
        assert all(later is first for later, first in zip(kept[2], kept[0]))

    def test_is_not_kept_for_a_backward_of_tensors_whose_values_may_change(self, device):
        doc = torch.zeros(40, dtype=torch.int32, device=device)
        mask = flashspan.masks.document(doc)
        query = torch.randn(1, 40, 2, 32, device=device).half().requires_grad_()
        gradient = torch.randn_like(query)
        for step in (40, 9, 4):
            doc.copy_(torch.arange(40) // step)
            got, = torch.autograd.grad(flashspan.attention(query, query, query, mask=mask), query, gradient)
            exact = query.detach().cpu().double().requires_grad_()
            visible = reference.dense_mask(lambda b, h, q, k: q // step == k // step, 1, 2, 40, 40)
            wanted, = torch.autograd.grad(reference.attention(exact, exact, exact, visible)[0], exact, gradient.cpu().double())
            assert_close(got, wanted, torch.float16, units=32)

    def test_is_not_that_of_another_number_or_length(self, device):
        for width in (3, 20):
            for length in (40, 56):
                got, query = self.call(device, flashspan.Mask("(q >= k) & (q - k < width)", width=width), length)
                wanted = flashspan.attention(query, query, query, mask=flashspan.masks.causal_window(width - 1))
                assert torch.equal(got, wanted)

    def test_is_not_kept_for_tensors_whose_values_may_change(self, device):
        doc = torch.zeros(40, dtype=torch.int32, device=device)
        mask = flashspan.masks.document(doc)
        self.call(device, mask)
        doc.copy_(torch.arange(40) // 9)
        got, query = self.call(device, mask)
        assert torch.equal(got, flashspan.attention(query, query, query, mask="q // 9 == k // 9"))

    def test_is_made_anew_in_one_workspace_for_tensors_whose_values_may_change(self, device):
        sizes = []
        for length in (40, 400, 56):
            doc = torch.arange(length, dtype=torch.int32, device=device) // 9
            got, query = self.call(device, flashspan.masks.causal_document(doc), length)
            wanted = flashspan.attention(query, query, query, mask="(q // 9 == k // 9) & (q >= k)")
            assert torch.equal(got, wanted)
            workspace, = calls._workspaces.values()
            sizes.append(workspace.numel())
        assert sizes[0] < sizes[1] == sizes[2]

    def test_is_kept_for_values_that_are_fixed(self, device):
        doc = torch.arange(40, device=device) // 7  # int64: what is read is a copy
        mask = flashspan.masks.causal_document(doc).fixed()
        for _ in range(3):
            got, query = self.call(device, mask)
            assert torch.equal(got, flashspan.attention(query, query, query, mask=flashspan.masks.causal_document(doc)))
        assert len(calls._plans) == 1

    def test_is_not_that_of_values_fixed_before_at_the_same_place(self, device):
        doc = torch.zeros(40, dtype=torch.int32, device=device)
        self.call(device, flashspan.masks.document(doc).fixed())
        doc.copy_(torch.arange(40) // 9)
        got, query = self.call(device, flashspan.masks.document(doc).fixed())
        assert torch.equal(got, flashspan.attention(query, query, query, mask="q // 9 == k // 9"))

    def test_is_not_that_of_a_mask_that_came_from_elsewhere(self, device):
        """Loaders of data make masks in processes of their own, which count alike; memory is used again."""
        doc = torch.zeros(40, dtype=torch.int32, device=device)
        here = flashspan.masks.document(doc).fixed()
        elsewhere = pickle.loads(pickle.dumps(here))
        assert elsewhere.values not in (None, 0, here.values)
        assert pickle.loads(pickle.dumps(flashspan.masks.causal())).values == 0

    def test_is_not_kept_where_a_fixed_mask_is_combined_with_another(self, device):
        doc = torch.zeros(40, dtype=torch.int32, device=device)
        mask = flashspan.masks.causal().fixed() & flashspan.masks.document(doc)
        self.call(device, mask)
        doc.copy_(torch.arange(40) // 9)
        got, query = self.call(device, mask)
        assert torch.equal(got, flashspan.attention(query, query, query, mask="(q // 9 == k // 9) & (q >= k)"))

    def from_four_threads(self, call):
        """Results of 16 calls of each of four threads, which all begin before one ends."""
        together = threading.Barrier(4)

        def calls_of_one(_):
            together.wait()
            return [call() for _ in range(16)]

        with ThreadPoolExecutor(4) as threads:
            return [result for results in threads.map(calls_of_one, range(4)) for result in results]

    def test_is_a_threads_own(self, device):
        query = torch.randn(1, 40, 2, 32, device=device).half()
        wanted = flashspan.attention(query, query, query, mask="causal")
        results = self.from_four_threads(lambda: flashspan.attention(query, query, query, mask="causal"))
        assert all(torch.equal(result, wanted) for result in results)
        assert len(calls._plans) == 5

    def test_is_made_anew_in_a_threads_own_workspace(self, device):
        query = torch.randn(1, 40, 2, 32, device=device).half()
        mask = flashspan.masks.document(torch.arange(40, dtype=torch.int32, device=device) // 9)
        wanted = flashspan.attention(query, query, query, mask="q // 9 == k // 9")
        results = self.from_four_threads(lambda: flashspan.attention(query, query, query, mask=mask))
        assert all(torch.equal(result, wanted) for result in results)
        assert len(calls._workspaces) == 4

    def test_is_let_go_with_many_others(self, device, monkeypatch):
        monkeypatch.setattr(calls, "_MOST_PLANS", 3)
        for length in range(40, 48):
            self.call(device, length=length)
            assert 1 <= len(calls._plans) <= 3

    def test_is_let_go_with_many_bytes(self, device, monkeypatch):
        self.call(device)
        (call, *_), = calls._plans
        monkeypatch.setattr(calls, "_MOST_KEPT_BYTES", 2 * call.workspace_bytes + 1)
        for values in range(6):
            self.call(device, flashspan.masks.document(torch.zeros(40, dtype=torch.int32, device=device)).fixed())
            assert sum(call.workspace_bytes for call, *_ in calls._plans) <= 2 * call.workspace_bytes + 1

    def test_is_no_part_of_a_cuda_graph(self, cuda):
        query = torch.randn(1, 40, 2, 32, device=cuda).half()
        flashspan.attention(query, query, query, mask="causal")
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            out = flashspan.attention(query, query, query, mask="causal")
        for _, plan in calls._plans.values():
            assert plan.made
        for workspace, _ in calls._plans.values():
            workspace.fill_(255)
        query.copy_(torch.randn_like(query))
        graph.replay()
        calls.forget_all()
        assert torch.equal(out, flashspan.attention(query, query, query, mask="causal"))


@pytest.fixture
def thawed():
    yield
    flashspan.freeze("compile")


@pytest.mark.usefixtures("thawed")
class TestFreeze:
    def call(self, device, number):
        query = torch.randn(1, 30, 1, 24, device=device).half()
        return dict(query=query, key=query, value=query, mask=f"(q * {number} - k) % 3 != 1")

    def test_refuses_what_was_not_prepared(self, device):
        prepared, other = self.call(device, 5), self.call(device, 7)
        flashspan.prepare([prepared])
        flashspan.freeze()
        flashspan.attention(**prepared)
        with pytest.raises(flashspan.NotPreparedError):
            flashspan.attention(**other)
        flashspan.freeze("compile")
        flashspan.attention(**other)

    def test_a_forward_does_not_compile_the_backward(self, device):
        call = self.call(device, 17)
        flashspan.prepare([call], backward=False)
        flashspan.freeze()
        out = flashspan.attention(**{**call, "query": call["query"].requires_grad_()})
        with pytest.raises(flashspan.NotPreparedError):
            out.sum().backward()

    def test_warns_where_it_is_asked_to(self, device, caplog):
        flashspan.freeze("warn")
        flashspan.attention(**self.call(device, 11))
        assert any(record.levelname == "WARNING" for record in caplog.records if record.name == "flashspan")

    def test_knows_its_policies(self, device):
        flashspan.attention(**self.call(device, 5))
        with pytest.raises(ValueError, match="on_miss"):
            flashspan.freeze("never")

    def test_interprets_masks_meanwhile(self, cuda):
        flashspan.prepare([self.call(cuda, 5)])
        flashspan.freeze("interpret")
        other = self.call(cuda, 13)
        got = flashspan.attention(**other)
        flashspan.freeze("compile")
        assert_close(got, flashspan.attention(**other), torch.float16)


def test_a_graph_of_torchs_tracer_holds_the_operator():
    """Not what was computed while it was traced, which a replay would give again."""
    query = torch.randn(1, 8, 2, 16)
    traced = torch.jit.trace(lambda tensor: flashspan.attention(tensor, tensor, tensor, mask="causal"), query, check_trace=False)
    other = torch.randn(1, 8, 2, 16)
    assert_close(traced(other), flashspan.attention(other, other, other, mask="causal"), torch.float32)
