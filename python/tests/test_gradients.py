"""Gradients of query, key, value, lse and sink are those of dense attention in fp64."""

import pytest
import torch

import flashspan
import reference
from conftest import assert_close, gapped


def gradients(inputs, out, lse, out_gradient, lse_gradient):
    loss = (out.double() * out_gradient).sum()
    if lse_gradient is not None:
        loss = loss + (torch.where(torch.isfinite(lse), lse, 0.0).double() * lse_gradient).sum()
    return torch.autograd.grad(loss, inputs)


def compare(place, mask, mask_mod, *, heads=4, kv_heads=2, q_len=70, kv_len=90, score=None, score_mod=None, sink=None,
            with_lse=False, units=16.0, **options):
    device, dtype = place
    tensors = [gapped((2, q_len, heads, 32), dtype, device), gapped((2, kv_len, kv_heads, 32), dtype, device),
               gapped((2, kv_len, kv_heads, 16), dtype, device)]
    exact = [tensor.cpu().double().requires_grad_() for tensor in tensors]
    tensors = [tensor.detach().requires_grad_() for tensor in tensors]
    if sink is not None:
        exact.append(sink.double().requires_grad_())
        tensors.append(sink.to(device).requires_grad_())
    visible = reference.dense_mask(mask_mod, 2, heads, q_len, kv_len)
    out_gradient = torch.randn(2, q_len, heads, 16).to(dtype).double()
    lse_gradient = torch.randn(2, heads, q_len).double() if with_lse else None

    got_out = flashspan.attention(*tensors[:3], mask=mask, score=score, sink=tensors[3] if sink is not None else None,
                                  return_lse=True, **options)
    got = gradients(tensors, *got_out, out_gradient.to(device),
                    None if lse_gradient is None else lse_gradient.to(device))
    wanted_out = reference.attention(*exact[:3], visible, score_mod, sink=exact[3] if sink is not None else None)
    wanted = gradients(exact, *wanted_out, out_gradient, lse_gradient)
    for ours, exactly, tensor in zip(got, wanted, tensors):
        assert ours.dtype == tensor.dtype
        assert_close(ours, exactly, tensor.dtype if tensor.dim() == 4 else dtype, units)


def causal(b, h, q, k):
    return k <= q + 20


@pytest.mark.usefixtures("poisoned_results")
class TestGradients:
    def test_of_a_causal_mask(self, place):
        compare(place, "causal", causal)

    def test_of_rows_and_keys_that_see_nothing(self, place):
        compare(place, "(q % 4 != 0) & (k % 5 != 0)", lambda b, h, q, k: (q % 4 != 0) & (k % 5 != 0))

    def test_through_lse(self, place):
        compare(place, "causal", causal, with_lse=True)

    def test_of_a_sink(self, place):
        compare(place, "causal", causal, sink=torch.tensor([0.3, -1.0, 2.0, 0.0]), with_lse=True, units=64.0)

    def test_of_a_score(self, place):
        compare(place, "causal", causal, score=lambda score, b, h, q, k: 4 * torch.tanh(score / 4),
                score_mod=lambda score, b, h, q, k: 4 * torch.tanh(score / 4))


def test_not_only_in_deterministic_mode(place):
    compare(place, "causal", causal)


def test_deterministic_gradients_have_the_same_bits(device):
    tensors = [torch.randn(1, 300, 2, 64, device=device).half().requires_grad_() for _ in range(3)]

    def once():
        out = flashspan.attention(*tensors, mask="causal", deterministic=True)
        return torch.autograd.grad(out.float().square().sum(), tensors)

    for first, second in zip(once(), once()):
        assert torch.equal(first, second)


def test_gradient_of_a_sum_whose_strides_are_zero(device):
    query = torch.randn(1, 20, 2, 16, device=device).half().requires_grad_()
    flashspan.attention(query, query, query, mask="q >= k").sum().backward()
    exact = query.detach().cpu().double().requires_grad_()
    visible = reference.dense_mask(lambda b, h, q, k: q >= k, 1, 2, 20, 20)
    reference.attention(exact, exact, exact, visible)[0].sum().backward()
    assert_close(query.grad, exact.grad, torch.float16, units=32)


def test_only_through_lse(device):
    query = torch.randn(1, 20, 2, 16, device=device).half().requires_grad_()
    _, lse = flashspan.attention(query, query.detach(), query.detach(), return_lse=True)
    lse.sum().backward()
    exact = query.detach().cpu().double().requires_grad_()
    reference.attention(exact, exact.detach(), exact.detach())[1].sum().backward()
    assert_close(query.grad, exact.grad, torch.float16, units=32)


def test_forward_mode_is_refused_where_it_would_give_zeros(device):
    query = torch.randn(1, 20, 2, 16, device=device).half()
    with pytest.raises(flashspan.UnsupportedError, match="forward mode"):
        torch.func.jvp(lambda key: flashspan.attention(query, key, query), (query,), (query,))
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(query, query)
        with pytest.raises(flashspan.UnsupportedError, match="forward mode"):
            flashspan.attention(query, query, dual)
        assert flashspan.attention(query, query, query).shape == query.shape


@pytest.mark.parametrize("transform", [torch.func.grad, torch.func.jacrev, lambda function: lambda query: torch.func.vjp(function, query)],
                         ids=["grad", "jacrev", "vjp"])
def test_gradients_by_torch_func_are_refused_with_what_to_do(transform, device):
    query = torch.randn(1, 20, 2, 16, device=device).half()
    with pytest.raises(flashspan.UnsupportedError, match=r"torch\.func.*backward\(\)"):
        transform(lambda query: flashspan.attention(query, query, query).float().sum())(query)


def test_vmap_is_refused_with_what_to_do(device):
    queries = torch.randn(3, 1, 20, 2, 16, device=device).half()
    with pytest.raises(flashspan.UnsupportedError, match="vmap.*part of the batch"):
        torch.func.vmap(lambda query: flashspan.attention(query, query, query))(queries)


def test_an_expanded_key_takes_the_sum_of_its_gradients(device):
    query = torch.randn(3, 20, 2, 16, device=device).half()
    key = torch.randn(1, 20, 2, 16, device=device).half().requires_grad_()
    flashspan.attention(query, key.expand(3, -1, -1, -1), query).sum().backward()
    exact = key.detach().cpu().double().requires_grad_()
    reference.attention(query.cpu(), exact.expand(3, -1, -1, -1), query.cpu())[0].sum().backward()
    assert_close(key.grad, exact.grad, torch.float16, units=32)


def test_finite_differences_agree():
    """torch.autograd.gradcheck. The CPU computes in fp32: inputs of fp64 are rounded to it, so steps are 1e-2 wide and 5e-3
    apart counts as equal (a step's rounding is 1e-5 of the step, its curvature 1e-4)."""
    tensors = [torch.randn(1, 5, 1, 4, dtype=torch.float64).requires_grad_() for _ in range(3)]
    sink = torch.randn(1, dtype=torch.float64).requires_grad_()

    def attention(query, key, value, sink):
        out, lse = flashspan.attention(query.float(), key.float(), value.float(), mask="q >= k", return_lse=True,
                                       sink=sink.float())
        return out.double(), lse.double()

    assert torch.autograd.gradcheck(attention, (*tensors, sink), eps=1e-2, atol=5e-3, rtol=1e-2)


def test_a_second_derivative_is_refused():
    query = torch.randn(1, 5, 1, 16).requires_grad_()
    gradient, = torch.autograd.grad(flashspan.attention(query, query, query).square().sum(), query, create_graph=True)
    with pytest.raises(flashspan.UnsupportedError, match="second derivative.*create_graph=False"):
        gradient.sum().backward()


def test_nothing_is_kept_without_gradients(device):
    query = torch.randn(1, 20, 2, 16, device=device).half().requires_grad_()
    with torch.no_grad():
        assert not flashspan.attention(query, query, query).requires_grad


def test_a_changed_input_is_noticed(device):
    query = torch.randn(1, 20, 2, 16, device=device).half()
    key = query.clone().requires_grad_()
    out = flashspan.attention(query, key, query)
    with torch.no_grad():
        query.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.sum().backward()


class TestScoreGradients:
    """Gradients of the tensors that a score looks up."""

    def compare(self, device, score_mod, tensors, deterministic=False, heads=4, units=64.0):
        """`score_mod(*tensors)` makes the callable."""
        dtype = torch.float32 if device == "cpu" else torch.float16
        query = torch.randn(2, 70, heads, 32).to(dtype)
        key = torch.randn(2, 70, 2, 32).to(dtype)
        exact = [tensor.double().requires_grad_() for tensor in tensors]
        ours = [tensor.to(device).requires_grad_() for tensor in tensors]
        gradient = torch.randn(2, 70, heads, 32).to(dtype)
        score = flashspan.Score(score_mod(*ours))
        out = flashspan.attention(query.to(device), key.to(device), key.to(device), mask="causal", score=score,
                                  deterministic=deterministic)
        visible = reference.dense_mask(lambda b, h, q, k: q >= k, 2, heads, 70, 70)
        wanted = reference.attention(query, key, key, visible, score_mod(*exact))[0]
        got = torch.autograd.grad(out, ours, gradient.to(device))
        for tensor, mine, exactly in zip(ours, got, torch.autograd.grad(wanted, exact, gradient.double())):
            assert mine.dtype == tensor.dtype and mine.shape == tensor.shape
            assert_close(mine, exactly, dtype, units)

    @pytest.mark.usefixtures("poisoned_results")
    def test_of_a_relative_bias(self, device):
        self.compare(device, lambda bias: lambda score, b, h, q, k: score + bias[h, q - k], [torch.randn(4, 70)])

    def test_of_a_number(self, device):
        self.compare(device, lambda slope: lambda score, b, h, q, k: score - slope * 0.01 * (q - k), [torch.tensor(0.5)])

    def test_of_two_tensors_in_a_function(self, device):
        self.compare(device, lambda gain, bias: lambda score, b, h, q, k: 3 * torch.tanh(score * gain[h] / 3 + bias[k]),
                     [torch.rand(4) + 0.5, torch.randn(70)])

    def test_of_a_tensor_read_through_indices(self, device):
        kinds = torch.randint(0, 5, (70,), dtype=torch.int32)
        self.compare(device, lambda bias: lambda score, b, h, q, k: score + bias[kinds.to(bias.device)[k]], [torch.randn(5)])

    @pytest.mark.parametrize("deterministic", [False, True])
    def test_of_a_bfloat16_parameter(self, device, deterministic):
        self.compare(device, lambda bias: lambda score, b, h, q, k: score + bias[h, k], [torch.randn(4, 70).bfloat16()],
                     deterministic, units=2**15 if device == "cpu" else 64)

    def test_the_compiler_finds_them(self, device):
        bias = torch.randn(70, device=device).requires_grad_()
        score = flashspan.Score(lambda score, b, h, q, k: score + bias[q - k])
        query = torch.randn(1, 70, 2, 32, device=device).half()

        def loss(query):
            return flashspan.attention(query, query, query, mask=mask, score=score).float().square().sum()

        mask = flashspan.masks.causal()
        wanted, = torch.autograd.grad(loss(query), bias)
        got, = torch.autograd.grad(torch.compile(loss, fullgraph=True, backend="aot_eager")(query), bias)
        assert_close(got, wanted, torch.float16)

    def test_a_parameter_learns_for_many_steps(self, device):
        """The program holds the parameter itself: steps change it, and each has a gradient."""
        slope = torch.nn.Parameter(torch.tensor(0.0, device=device))
        score = flashspan.Score(lambda score, b, h, q, k: score - slope * (q - k).abs())
        query = torch.randn(1, 40, 1, 16, device=device).half()
        target = flashspan.attention(query, query, query, score="score - 0.3 * abs(q - k)")
        optimizer = torch.optim.Adam([slope], lr=0.05)
        losses = []
        for _ in range(40):
            loss = (flashspan.attention(query, query, query, score=score) - target).float().square().sum()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        assert losses[-1] < 0.05 * losses[0]
