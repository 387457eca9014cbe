"""flashspan.compat.transformers against the eager attention of small models of random weights."""

import pytest
import torch

transformers = pytest.importorskip("transformers")

import flashspan
from conftest import assert_close
from flashspan import BadArgumentError, UnsupportedError
from flashspan.compat.transformers import attention_forward, register, traced_mask

register()

SIZES = dict(vocab_size=61, hidden_size=64, intermediate_size=96, num_hidden_layers=3, num_attention_heads=4,
             num_key_value_heads=2, max_position_embeddings=256, pad_token_id=0, bos_token_id=None, eos_token_id=None)


def llama():
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(**SIZES))


def mistral():
    """Every layer sees a window."""
    return transformers.MistralForCausalLM(transformers.MistralConfig(**SIZES, head_dim=16, sliding_window=9))


def gemma2():
    """Layers with and without a window in turn, and a soft cap."""
    return transformers.Gemma2ForCausalLM(transformers.Gemma2Config(
        **SIZES, head_dim=16, sliding_window=9, query_pre_attn_scalar=16, attn_logit_softcapping=2.0))


def gpt_oss():
    """A learned sink for each head."""
    return transformers.GptOssForCausalLM(transformers.GptOssConfig(
        **SIZES, head_dim=16, sliding_window=9, num_local_experts=2, num_experts_per_tok=2, experts_implementation="eager"))


MODELS = [llama, mistral, gemma2, gpt_oss]


@pytest.fixture(params=MODELS, ids=lambda make: make.__name__)
def model(request, device):
    made = request.param().to(device)
    return made.half() if device == "cuda" else made


def assert_near(got, wanted, of_gradients=False):
    """To what three layers of rounding come to; eager attention rounds more often than ours."""
    units = {torch.float32: (128, 1024), torch.float16: (16, 64)}[wanted.dtype][of_gradients]
    assert_close(got, wanted, wanted.dtype, units)


def run(model, implementation, seen=None, **inputs):
    """Logits of the tokens `seen`, and the gradients of all weights."""
    model.set_attn_implementation(implementation)
    model.zero_grad()
    logits = model(**inputs, use_cache=False).logits
    if seen is not None:
        logits = logits[seen]
    (logits.float() * torch.sin(torch.arange(logits.numel(), device=logits.device).reshape(logits.shape))).sum().backward()
    return logits, [weight.grad for weight in model.parameters() if weight.grad is not None]


def assert_same_as_eager(model, seen=None, **inputs):
    inputs = {name: tensor.to(model.device) if isinstance(tensor, torch.Tensor) else tensor for name, tensor in inputs.items()}
    wanted, wanted_gradients = run(model, "eager", seen, **inputs)
    got, got_gradients = run(model, "span_attention", seen, **inputs)
    assert torch.isfinite(wanted).all()
    assert_near(got, wanted)
    assert len(got_gradients) == len(wanted_gradients)
    for ours, theirs in zip(got_gradients, wanted_gradients):
        assert_near(ours, theirs, of_gradients=True)


def tokens(*shape):
    return torch.randint(1, SIZES["vocab_size"], shape)


def test_a_batch(model):
    assert_same_as_eager(model, input_ids=tokens(2, 33))


def test_padding_on_the_left_and_on_the_right(model):
    is_token = torch.ones(3, 33, dtype=torch.int64)
    is_token[0, :7] = is_token[1, 20:] = 0
    assert_same_as_eager(model, seen=is_token.bool(), input_ids=tokens(3, 33), attention_mask=is_token)


def positions_of(*lengths):
    return torch.cat([torch.arange(length) for length in lengths])[None]


def test_documents_whose_positions_start_again(model):
    assert_same_as_eager(model, input_ids=tokens(1, 45), position_ids=positions_of(12, 3, 30))


def test_documents_that_are_told_by_their_starts(model):
    """Each is as if it were alone: not every model's eager attention keeps documents apart."""
    lengths = (12, 3, 30)
    input_ids, positions = (tensor.to(model.device) for tensor in (tokens(1, 45), positions_of(*lengths)))
    starts = torch.tensor([0, 12, 15, 45], dtype=torch.int32, device=model.device)
    model.set_attn_implementation("span_attention")
    got = model(input_ids=input_ids, position_ids=positions, cu_seq_lens_q=starts, cu_seq_lens_k=starts, max_length_q=30,
                max_length_k=30, use_cache=False).logits
    model.set_attn_implementation("eager")
    alone = [model(input_ids=document, use_cache=False).logits for document in input_ids.split(lengths, dim=1)]
    assert_near(got, torch.cat(alone, dim=1))


def test_the_collator_of_flattened_documents(device):
    documents = [{"input_ids": tokens(length).tolist()} for length in (5, 11, 8)]
    collator = transformers.DataCollatorWithFlattening(return_flash_attn_kwargs=True)
    batch = {name: item for name, item in collator(documents).items() if name != "labels"}
    model = llama().to(device)
    assert_same_as_eager(model.half() if device == "cuda" else model, **batch)


def test_a_bidirectional_encoder(device):
    model = transformers.BertModel(transformers.BertConfig(
        vocab_size=61, hidden_size=64, num_hidden_layers=2, num_attention_heads=4, intermediate_size=96,
        hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0), add_pooling_layer=False)
    model = model.to(device).half() if device == "cuda" else model
    is_token = torch.ones(2, 29, dtype=torch.int64)
    is_token[1, 20:] = 0
    inputs = dict(input_ids=tokens(2, 29).to(device), attention_mask=is_token.to(device))
    states = []
    for implementation in ("eager", "span_attention"):
        model.set_attn_implementation(implementation)
        states.append(model(**inputs).last_hidden_state[is_token.bool()])
    assert_near(states[1], states[0])


@pytest.mark.parametrize("cache", ["dynamic", "static"])
def test_generation_takes_the_same_tokens(model, cache):
    inputs = tokens(2, 12).to(model.device)
    is_token = torch.ones_like(inputs)
    is_token[0, :4] = 0
    taken = []
    for implementation in ("eager", "span_attention"):
        model.set_attn_implementation(implementation)
        taken.append(model.generate(inputs, attention_mask=is_token, max_new_tokens=14, do_sample=False,
                                    cache_implementation=cache, disable_compile=True))
    assert torch.equal(*taken)


def test_gradient_checkpointing(device):
    model = llama().to(device)
    model = model.half() if device == "cuda" else model
    by_either_name = [name for name in ("activation_checkpointing_enable", "gradient_checkpointing_enable") if hasattr(model, name)]
    getattr(model, by_either_name[0])()  # the first is that of later versions of transformers
    model.train()
    assert_same_as_eager(model, input_ids=tokens(2, 33))


def test_a_compiled_model(device):
    """Its mask is made between two graphs: what transformers gives is a callable."""
    model = llama().to(device)
    model = model.half() if device == "cuda" else model
    model.set_attn_implementation("span_attention")
    inputs = tokens(2, 21).to(device)
    wanted = model(input_ids=inputs, use_cache=False).logits
    got = torch.compile(model, backend="aot_eager")(input_ids=inputs, use_cache=False).logits
    assert_near(got, wanted)


def test_longer_prompts_and_caches_compile_nothing(device):
    model = llama().to(device)
    model = model.half() if device == "cuda" else model
    model.set_attn_implementation("span_attention")
    # One token with a cache, and several: kernels for so few queries that keys are shared out are others.
    model.generate(tokens(1, 8).to(device), max_new_tokens=3, do_sample=False)
    flashspan.freeze()
    try:
        model.generate(tokens(1, 11).to(device), max_new_tokens=5, do_sample=False)
    finally:
        flashspan.freeze("compile")


class Layer(torch.nn.Module):
    is_causal = True


def rows(device, q_len=20, kv_len=20, batch=2):
    dtype = torch.float16 if device == "cuda" else torch.float32
    shapes = ((batch, 4, q_len, 16), (batch, 2, kv_len, 16), (batch, 2, kv_len, 16))
    return [torch.randn(shape, device=device, dtype=dtype) for shape in shapes]


def ours(query, key, value, **options):
    return flashspan.attention(query, key, value, layout="bhsd", **options).transpose(1, 2)


class TestOneLayer:
    def test_takes_masks_of_truth_values(self, device):
        seen = torch.rand(2, 1, 20, 20, device=device) < 0.6
        got, weights = attention_forward(Layer(), *(rows_of := rows(device)), seen)
        assert weights is None
        assert torch.equal(got, ours(*rows_of, mask=flashspan.Mask(lambda b, h, q, k: seen[b, 0, q, k])))

    def test_takes_masks_of_numbers(self, device):
        tensors = rows(device)
        bias = torch.randn(1, 4, 20, 20, device=device).to(tensors[0].dtype)
        seen = torch.rand(1, 1, 20, 20, device=device) < 0.6
        added = torch.where(seen, bias, torch.finfo(bias.dtype).min)
        got, _ = attention_forward(Layer(), *tensors, added)
        wanted = ours(*tensors, mask=flashspan.Mask(lambda b, h, q, k: seen[0, 0, q, k]),
                      score=flashspan.Score(lambda score, b, h, q, k: score + bias[0, h, q, k]))
        assert_close(got, wanted, got.dtype)

    def test_f003_numbers_of_the_lowest_value_hide_even_whole_rows(self, device):
        """A field case: eager attention gives a row that is all lowest the mean of all values; here it sees nothing."""
        query, key, value = rows(device, q_len=70, kv_len=70)
        added = torch.zeros(1, 1, 70, 70, device=device, dtype=query.dtype)
        added[..., :40] = added[..., 5, :] = torch.finfo(added.dtype).min
        got, _ = attention_forward(Layer(), query, key, value, added, is_causal=False)
        others = [row for row in range(70) if row != 5]
        wanted = ours(query, key[:, :, 40:], value[:, :, 40:])
        assert torch.all(got[:, 5] == 0) and torch.isfinite(got).all()
        assert_close(got[:, others], wanted[:, others], got.dtype)

    def test_takes_position_biases_that_learn(self, device):
        tensors = rows(device)
        bias = torch.randn(1, 4, 20, 20, device=device).to(tensors[0].dtype).requires_grad_()
        got, _ = attention_forward(Layer(), *tensors, None, position_bias=bias, softcap=3.0)
        score = flashspan.Score("3 * tanh(score / 3) + bias[0, h, q, k]", bias=bias)
        wanted = ours(*tensors, mask="causal", score=score)
        assert_close(got, wanted, got.dtype)
        weights = torch.randn_like(got)
        assert_close(*(torch.autograd.grad(out, bias, weights)[0] for out in (got, wanted)), got.dtype)

    def test_without_a_mask_follows_the_module(self, device):
        tensors = rows(device, q_len=11)
        assert torch.equal(attention_forward(Layer(), *tensors, None)[0], ours(*tensors, mask="causal"))
        assert torch.equal(attention_forward(Layer(), *tensors, None, is_causal=False)[0], ours(*tensors))
        assert torch.equal(attention_forward(Layer(), *tensors, None, sliding_window=5)[0],
                           ours(*tensors, mask=flashspan.masks.causal_window(4)))
        assert torch.equal(attention_forward(Layer(), *tensors, None, is_causal=False, sliding_window=5)[0],
                           ours(*tensors, mask=flashspan.masks.window(4, 4)))

    def test_refuses_what_it_would_have_to_ignore(self):
        tensors = rows("cpu")
        with pytest.raises(UnsupportedError, match="dropout"):
            attention_forward(Layer(), *tensors, None, dropout=0.1)
        with pytest.raises(UnsupportedError, match="output_attentions"):
            attention_forward(Layer(), *tensors, None, output_attentions=True)
        with pytest.raises(BadArgumentError, match="attention_mask: got rank 2"):
            attention_forward(Layer(), *tensors, torch.ones(2, 20))
        starts = torch.tensor([0, 20], dtype=torch.int32)
        with pytest.raises(UnsupportedError, match="batch of 2"):
            attention_forward(Layer(), *tensors, None, cu_seq_lens_q=starts, cu_seq_lens_k=starts)


def test_a_name_that_transformers_takes_for_another_library_is_refused():
    with pytest.raises(BadArgumentError, match="flash-attn"):
        register("flashspan")


@pytest.mark.parametrize("shape", [(), (1,)], ids=str)
def test_the_mask_is_that_of_the_positions(device, shape):
    is_token = torch.tensor([[1, 1, 0, 1, 1, 1]], device=device)
    mask = traced_mask(1, 3, 4, q_offset=torch.tensor(3, device=device).reshape(shape), kv_offset=2, attention_mask=is_token)
    q, k = torch.arange(3)[:, None] + 3, torch.arange(4) + 2
    visible = (q >= k) & (is_token.cpu()[0, 2:] != 0)
    assert mask.shape == (1, 1, 3, 4)
    assert mask.mask.density(3, 4) == visible.double().mean().item()


@pytest.mark.parametrize("name", ["sinks", "indices", "block_indices"])
def test_a_sparsity_of_the_models_own_is_refused(name):
    query = torch.randn(1, 2, 4, 16)
    with pytest.raises(UnsupportedError, match=name):
        attention_forward(torch.nn.Module(), query, query, query, None, **{name: torch.zeros(1)})
