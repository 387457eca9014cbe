"""Attention of torch tensors: the operators flashspan::attention and flashspan::attention_backward.

A mask or score passes through an operator as its description (text) and the list of the tensors it reads, so that torch sees
every tensor that is read: in graphs of torch.compile, in CUDA graphs and in autograd.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch.autograd import forward_ad

from . import calls
from .errors import BadArgumentError, UnsupportedError
from .tensors import converted, cuda_device, description

if TYPE_CHECKING:
    from .mask import Mask
    from .program import Program
    from .score import Score

_TAGS = (torch.Tag.pt2_compliant_tag,)
_PROGRAMS = "str mask, Tensor[] mask_tensors, str score, Tensor[] score_tensors"

torch.library.define(
    "flashspan::attention",
    f"(Tensor query, Tensor key, Tensor value, Tensor? sink, {_PROGRAMS}, float? scale, str layout, bool deterministic,"
    " int[]? tile, int[]? backward_tile) -> (Tensor, Tensor)", tags=_TAGS)
torch.library.define(
    "flashspan::attention_backward",
    "(Tensor out_gradient, Tensor? lse_gradient, Tensor query, Tensor key, Tensor value, Tensor? sink, Tensor out,"
    f" Tensor lse, {_PROGRAMS}, bool[] score_gradients, float? scale, str layout, bool deterministic, int[]? tile)"
    " -> (Tensor, Tensor, Tensor, Tensor, Tensor[])", tags=_TAGS)


def attention(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: Mask | None, score: Score | None,
              scale: float | None, layout: str, deterministic: bool, sink: torch.Tensor | None,
              return_lse: bool, tile: Sequence[int] = (),
              backward_tile: Sequence[int] = ()) -> tuple[torch.Tensor, torch.Tensor | None]:
    """(out, lse): see `flashspan.attention`. Without `return_lse`, lse may be None. Tiles are those of `Config.tile`; without
    any, the library chooses."""
    inputs = _inputs(query, key, value, mask, score, scale, layout, deterministic, sink, tile, backward_tile)
    if forward_ad._current_level >= 0:
        _refuse_tangents(*inputs[:4], *inputs[7])
    if not (_is_plain(query) and _is_plain(key) and _is_plain(value) and _nothing_watches()):
        if not torch.compiler.is_compiling():
            _refuse_transform(torch._C._functorch.peek_interpreter_stack())
        return torch.ops.flashspan.attention.default(*inputs)
    query, key, value, sink, _, _, _, score_tensors, *_ = inputs
    values = None if mask is None else mask.values
    if torch.is_grad_enabled() and _requires_grad(query, key, value, sink, score_tensors):
        return _differentiable_at_once(query, key, value, sink, inputs, values, *score_tensors)
    return _forward(*inputs, with_lse=return_lse, keeps_memory=True, mask_values=values)


def _refuse_tangents(*tensors: torch.Tensor | None) -> None:
    """For forward-mode differentiation, in which torch takes an operator that has no rule for it for a constant."""
    if any(tensor is not None and forward_ad.unpack_dual(tensor).tangent is not None for tensor in tensors):
        raise UnsupportedError("attention", "a derivative in forward mode (torch.func.jvp)", "derivatives in reverse mode")


def _refuse_transform(transform: Any) -> None:
    """Of torch.func, if there is one: torch would name a method that it misses, or no rule, and not what to do."""
    if transform is None:
        return
    kinds = torch._C._functorch.TransformType
    if transform.key() == kinds.Grad:
        raise UnsupportedError("attention", "a transform of torch.func (grad, vjp, jacrev)",
                               "torch.autograd: tensors with requires_grad, and backward() or torch.autograd.grad()")
    if transform.key() == kinds.Vmap:
        raise UnsupportedError("attention", "torch.func.vmap", "the mapped dimension as a part of the batch or of the heads")


def described(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: Mask | None, score: Score | None,
              scale: float | None, layout: str, deterministic: bool, sink: torch.Tensor | None, backward: bool,
              tile: Sequence[int] = (), backward_tile: Sequence[int] = ()) -> list:
    """The described calls of `attention`, and with `backward` of its backward. See `flashspan.prepare`."""
    inputs = _inputs(query, key, value, mask, score, scale, layout, deterministic, sink, tile, backward_tile)
    query, key, value = (_with_contiguous_rows(tensor.detach()) for tensor in inputs[:3])
    out, lse = _out_like(query, value), _lse_like(query, layout)
    prepared = [_forward_call(query, key, value, inputs[3], out, lse, *_of_forward(inputs))]
    if backward:
        prepared.append(_expected_backward_call(query, key, value, inputs[3], out, lse, *inputs[4:]))
    return prepared


def _expected_backward_call(query, key, value, sink, out, lse, mask, mask_tensors, score, score_tensors, scale, layout,
                            deterministic, tile, backward_tile) -> Any:
    """The described backward of a forward call whose gradient of out will look as out does."""
    wanted = [tensor.requires_grad for tensor in score_tensors]
    results = _gradients_like(query, key, value, sink, score_tensors, wanted)
    return _backward_call(out, None, query, key, value, sink, out, lse, results, mask, mask_tensors, score, score_tensors,
                          wanted, scale, layout, deterministic, backward_tile)


def placed(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: Mask | None, score: Score | None,
           scale: float | None, layout: str, deterministic: bool, sink: torch.Tensor | None,
           backward: bool, tile: Sequence[int] = (),
           backward_tile: Sequence[int] = ()) -> Iterator[tuple[str, Any, tuple]]:
    """(direction, described call, (addresses, stream, addresses of score gradients)) of `attention`, and with `backward` of its
    backward, which reads what the forward has written by then. The tensors live as long as the iterator."""
    inputs = _inputs(query, key, value, mask, score, scale, layout, deterministic, sink, tile, backward_tile)
    query, key, value, sink = inputs[:4]
    query, key, value = (_with_contiguous_rows(tensor.detach()) for tensor in (query, key, value))
    _check_ranks(query, key, value, layout)
    out, lse = _out_like(query, value), _lse_like(query, layout)
    stream = _stream(query)
    given = (query.data_ptr(), key.data_ptr(), value.data_ptr(), _address(sink), out.data_ptr(), lse.data_ptr())
    yield "forward", _forward_call(query, key, value, sink, out, lse, *_of_forward(inputs)), (given, stream, [])
    if not backward:
        return
    mask_text, mask_tensors, score_text, score_tensors, *options, _, backward_tile = inputs[4:]
    options.append(backward_tile)
    wanted = [tensor.requires_grad for tensor in score_tensors]
    results = _gradients_like(query, key, value, sink, score_tensors, wanted)
    out_gradient = torch.ones_like(out)
    call = _backward_call(out_gradient, None, query, key, value, sink, out, lse, results, mask_text, mask_tensors, score_text,
                          score_tensors, wanted, *options)
    addresses = (*given, out_gradient.data_ptr(), 0, *(result.data_ptr() for result in results[:4]))
    yield "backward", call, (addresses, stream, [result.data_ptr() for result in results[4]])


def _inputs(query, key, value, mask, score, scale, layout, deterministic, sink, tile=(), backward_tile=()) -> tuple:
    """The operator's arguments."""
    if not (isinstance(key, torch.Tensor) and isinstance(value, torch.Tensor)):
        name, other = ("value", value) if isinstance(key, torch.Tensor) else ("key", key)
        raise BadArgumentError(name, type(other).__name__, "a torch tensor, as query is")
    if torch._C._is_any_autocast_enabled() and torch.is_autocast_enabled(query.device.type):
        dtype = torch.get_autocast_dtype(query.device.type)
        query, key, value = query.to(dtype), key.to(dtype), value.to(dtype)
    calls.check_scale(scale)
    mask_text, mask_tensors = _parts(mask, query)
    score_text, score_tensors = _parts(score, query)
    if sink is not None and not isinstance(sink, torch.Tensor):
        raise BadArgumentError("sink", type(sink).__name__, "a torch tensor, as query is")
    if sink is not None and sink.dtype != torch.float32:
        sink = sink.float()
    return (query, key, value, sink, mask_text, mask_tensors, score_text, score_tensors, scale, layout,
            deterministic or torch.are_deterministic_algorithms_enabled(), tile or None, backward_tile or None)


def _of_forward(inputs: tuple) -> tuple:
    """Of the operator's arguments, those behind the tensors that a forward takes."""
    return *inputs[4:10], inputs[11]


def _requires_grad(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, sink: torch.Tensor | None,
                   score_tensors: list[torch.Tensor]) -> bool:
    return (query.requires_grad or key.requires_grad or value.requires_grad or (sink is not None and sink.requires_grad)
            or bool(score_tensors) and any(tensor.requires_grad for tensor in score_tensors))


def _nothing_watches() -> bool:
    """True if nothing would see a call pass through torch's dispatcher: no compiler, tracer, mode or transform.

    The way through the operator costs a call 15 us of host time, or with autograd 55 us, on a machine where the rest takes
    10 us; what runs is the same.
    """
    return (not torch.compiler.is_compiling() and torch._C._len_torch_dispatch_stack() == 0
            and torch._C._functorch.peek_interpreter_stack() is None and torch._C._get_tracing_state() is None)


def _is_plain(tensor: torch.Tensor) -> bool:
    """False for subclasses, which have a part in what is done to them."""
    return type(tensor) in _PLAIN


_PLAIN = (torch.Tensor, torch.nn.Parameter)


def _parts(program: Program | None, query: torch.Tensor) -> tuple[str, list[torch.Tensor]]:
    if program is None:
        return "", []
    return program.description, [_readable(tensor, query) for tensor in program.tensors]


_CONVERTED = {torch.bool: torch.int32, torch.uint8: torch.int32, torch.int8: torch.int32, torch.int16: torch.int32,
              torch.int64: torch.int32, torch.float64: torch.float32}


def _readable(tensor: Any, query: torch.Tensor) -> torch.Tensor:
    """A looked-up tensor in a dtype that the library reads, on the device of `query`."""
    if not isinstance(tensor, torch.Tensor):
        tensor = torch.from_numpy(tensor)
    if tensor.dim() == 0:
        tensor = tensor.reshape(1)
    if tensor.device != query.device:
        raise BadArgumentError("mask or score", f"a tensor on {tensor.device}",
                               f"tensors on the query's device: mask.to('{query.device}')")
    if tensor.dtype in _CONVERTED:
        compiling = torch.compiler.is_compiling()
        return tensor.to(_CONVERTED[tensor.dtype]) if compiling else converted(tensor, "mask or score tensor")
    return tensor


# -- The operators' work


def _with_contiguous_rows(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.stride(-1) == 1 or tensor.shape[-1] == 1:
        return tensor
    return tensor.clone(memory_format=torch.contiguous_format)  # contiguous() leaves strides of 0 where there are no elements


def _empty_row_major(like: torch.Tensor) -> torch.Tensor:
    if like.is_contiguous():  # then torch need not be told of a format, which is a third of its time
        return torch.empty_like(like)
    return torch.empty_like(like, memory_format=torch.contiguous_format)


def _out_like(query: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    if query.shape[-1] == value.shape[-1]:  # said without a shape, which takes torch half the time
        return _empty_row_major(query)
    return query.new_empty((*query.shape[:-1], value.shape[-1]))


def _lse_like(query: torch.Tensor, layout: str) -> torch.Tensor:
    batch, second, third, _ = query.shape
    heads, length = (second, third) if layout == "bhsd" else (third, second)
    return query.new_empty((batch, heads, length), dtype=torch.float32)


def _look(tensor: torch.Tensor | None) -> tuple | None:
    """What a description tells of a tensor, of its address the alignment alone, by which kernels differ."""
    if tensor is None:
        return None
    return tensor.shape, tensor.stride(), tensor.dtype, tensor.get_device(), tensor.data_ptr() % _ALIGNMENT


_ALIGNMENT = 16  # bytes


def _identity(mask_tensors: list[torch.Tensor], score_tensors: list[torch.Tensor]) -> Sequence:
    if not (mask_tensors or score_tensors):
        return ()
    return [(tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.dtype) for tensor in (*mask_tensors, *score_tensors)]


def _address(tensor: torch.Tensor | None) -> int:
    return 0 if tensor is None else tensor.data_ptr()


def _stream(query: torch.Tensor) -> int:
    return torch._C._cuda_getCurrentRawStream(query.get_device()) if query.is_cuda else 0


def _workspace_and_plan(call: Any, query: torch.Tensor, stream: int, keeps_memory: bool,
                        mask_values: int | None) -> tuple[Any, Any]:
    """With a plan that is kept for the values of a mask, or with None for one that is made and forgotten."""
    size = call.workspace_bytes
    if not size:
        return None, None
    if not keeps_memory or size > calls.LARGEST_KEPT_WORKSPACE or _is_capturing(query):  # a graph has memory of its own
        return _new_workspace(size, query.device), None
    if mask_values is None or not calls.keeps_plans():
        return calls.kept_workspace(size, query.device, stream, _new_workspace), None
    return calls.kept_plan(call, query.device, stream, mask_values, _new_workspace)


def _new_workspace(size: int, device: torch.device) -> torch.Tensor:
    return torch.empty(size, dtype=torch.uint8, device=device)


def _described_inputs(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, bshd: bool, mask: str, mask_tensors: list,
                      score: str, score_tensors: list) -> tuple[list[tuple], tuple[Any, Any]]:
    """Descriptions of query, key and value, and the extension's Mask and Score, or None, for their sizes."""
    tensors = [description(query, "query", bshd), description(key, "key", bshd), description(value, "value", bshd)]
    programs = calls.programs(mask, [description(tensor, "mask") for tensor in mask_tensors],
                              score, [description(tensor, "score") for tensor in score_tensors], calls.sizes_of(*tensors))
    return tensors, programs


def _check_ranks(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, layout: str) -> None:
    calls.check_layout(layout)
    if query.dim() == key.dim() == value.dim() == 4:
        return
    for name, tensor in (("query", query), ("key", key), ("value", value)):
        if tensor.dim() != 4:
            raise BadArgumentError(name, f"rank {tensor.dim()}", f"rank 4, in the order {layout}")


def _forward(query, key, value, sink, mask, mask_tensors, score, score_tensors, scale, layout, deterministic, tile,
             backward_tile, *, with_lse=True, differentiable=False, keeps_memory=False, mask_values=None):
    """The operator; and besides, without lse, with the backward's kernel compiled beside its own, or (where torch does not watch
    it) with memory that is kept for the next call, and in it tiles that are planned once for `mask_values`."""
    _check_ranks(query, key, value, layout)
    query, key, value = _with_contiguous_rows(query), _with_contiguous_rows(key), _with_contiguous_rows(value)
    out, lse = _out_like(query, value), _lse_like(query, layout) if with_lse else None
    inputs = query, key, value, sink, out, lse, mask, mask_tensors, score, score_tensors, scale, layout
    also = (lambda: _expected_backward_call(*inputs, deterministic, tile, backward_tile)) if differentiable else None
    call = _forward_call(*inputs, tile, also)
    stream = _stream(query)
    workspace, plan = _workspace_and_plan(call, query, stream, keeps_memory, mask_values)
    call.run((query.data_ptr(), key.data_ptr(), value.data_ptr(), _address(sink), out.data_ptr(), _address(lse)),
             _address(workspace), stream, [], plan)
    return out, lse


def _forward_call(query, key, value, sink, out, lse, mask, mask_tensors, score, score_tensors, scale, layout, tile,
                  also=None):
    """The described call; out and lse follow from the others. When it is described for the first time, `also` gives
    another, whose kernel is compiled at the same time."""
    seen = ("forward", mask, score, scale, layout, _in_key(tile), lse is None, _look(query), _look(key), _look(value),
            _look(sink), *_identity(mask_tensors, score_tensors))
    known = calls.known(seen)
    if known is not None:
        return known
    bshd = layout == "bshd"
    tensors, programs = _described_inputs(query, key, value, bshd, mask, mask_tensors, score, score_tensors)
    call = calls.forward(cuda_device(query), *programs, scale, tile, *tensors, _optional(sink, "sink"),
                         description(out, "out", bshd), _optional(lse, "lse"))
    if also is not None and not _is_capturing(query):
        kind = mask, score, query.dtype, query.shape[-1], value.shape[-1], _in_key(tile)
        calls.compile_together(cuda_device(query), kind, call, also)
    return calls.remembered(seen, call)


def _in_key(tile: Sequence[int] | None) -> tuple[int, ...]:
    """As hashes want it: operators get lists, or None."""
    return tuple(tile) if tile else ()


def _is_capturing(query: torch.Tensor) -> bool:
    """True in the capture of a CUDA graph, which loading a kernel would break."""
    return query.is_cuda and torch._C._cuda_isCurrentStreamCapturing()


def _backward(out_gradient, lse_gradient, query, key, value, sink, out, lse, mask, mask_tensors, score, score_tensors,
              score_gradients, scale, layout, deterministic, tile, *, keeps_memory=False, mask_values=None):
    """The operator; and besides, as `_forward`, with memory that is kept."""
    query, key, value = _with_contiguous_rows(query), _with_contiguous_rows(key), _with_contiguous_rows(value)
    out, out_gradient, lse = _with_contiguous_rows(out), _with_contiguous_rows(out_gradient), _with_contiguous_rows(lse)
    if lse_gradient is not None:
        lse_gradient = lse_gradient.contiguous()
    results = _gradients_like(query, key, value, sink, score_tensors, score_gradients)
    call = _backward_call(out_gradient, lse_gradient, query, key, value, sink, out, lse, results, mask, mask_tensors, score,
                          score_tensors, score_gradients, scale, layout, deterministic, tile)
    addresses = (query.data_ptr(), key.data_ptr(), value.data_ptr(), _address(sink), out.data_ptr(), lse.data_ptr(),
                 out_gradient.data_ptr(), _address(lse_gradient), *(result.data_ptr() for result in results[:4]))
    stream = _stream(query)
    workspace, plan = _workspace_and_plan(call, query, stream, keeps_memory, mask_values)
    call.run(addresses, _address(workspace), stream, [result.data_ptr() for result in results[4]], plan)
    return results


def _backward_call(out_gradient, lse_gradient, query, key, value, sink, out, lse, results, mask, mask_tensors, score,
                   score_tensors, score_gradients, scale, layout, deterministic, tile):
    """The described call; `results` follow from the others."""
    seen = ("backward", deterministic, _in_key(tile), tuple(score_gradients), mask, score, scale, layout, _look(query),
            _look(key), _look(value), _look(sink), _look(out), _look(lse), _look(out_gradient), _look(lse_gradient),
            *_identity(mask_tensors, score_tensors))
    known = calls.known(seen)
    if known is not None:
        return known
    bshd = layout == "bshd"
    tensors, programs = _described_inputs(query, key, value, bshd, mask, mask_tensors, score, score_tensors)
    wanted = [name for name, is_wanted in zip(calls.names_in(score), score_gradients) if is_wanted]
    return calls.remembered(seen, calls.backward(
        cuda_device(query), *programs, scale, deterministic, tile,
        [(name, description(result, name)) for name, result in zip(wanted, results[4])], *tensors,
        _optional(sink, "sink"), description(out, "out", bshd), description(lse, "lse"),
        description(out_gradient, "out_gradient", bshd), _optional(lse_gradient, "lse_gradient"),
        *(description(result, "gradient", bshd) for result in results[:3]),
        None if sink is None else description(results[3], "sink_gradient")))


def _optional(tensor: torch.Tensor | None, name: str) -> Any:
    return None if tensor is None else description(tensor, name)


def _gradients_like(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, sink: torch.Tensor | None,
                    score_tensors: list, score_gradients: list) -> tuple:
    """Uninitialised gradients, row-major whatever the strides of the inputs; that of no sink has no elements. Those of the
    score's tensors are float32, of the ones that want one."""
    like_sink = query.new_empty(0, dtype=torch.float32) if sink is None else sink.new_empty(sink.shape)
    like_score = [tensor.new_empty(tensor.shape, dtype=torch.float32)
                  for tensor, is_wanted in zip(score_tensors, score_gradients) if is_wanted]
    like_rows = [_empty_row_major(tensor) for tensor in (query, key, value)]
    return *like_rows, like_sink, like_score


for _device in ("CPU", "CUDA"):
    torch.library.impl("flashspan::attention", _device)(_forward)
    torch.library.impl("flashspan::attention_backward", _device)(_backward)


# -- What tracing needs to know


@torch.library.register_fake("flashspan::attention")
def _fake_forward(query, key, value, sink, mask, mask_tensors, score, score_tensors, scale, layout, deterministic, tile,
                  backward_tile):
    _check_ranks(query, key, value, layout)
    return _out_like(query, value), _lse_like(query, layout)


@torch.library.register_fake("flashspan::attention_backward")
def _fake_backward(out_gradient, lse_gradient, query, key, value, sink, out, lse, mask, mask_tensors, score,
                   score_tensors, score_gradients, scale, layout, deterministic, tile):
    return _gradients_like(query, key, value, sink, score_tensors, score_gradients)


# -- Autograd


def _keep(ctx: Any, inputs: tuple, output: tuple) -> None:
    query, key, value, sink, mask, mask_tensors, score, score_tensors, scale, layout, deterministic, _, tile = inputs
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(query, key, value, sink, *output, *mask_tensors, *score_tensors)
    ctx.masks = len(mask_tensors)
    ctx.score_gradients = [tensor.requires_grad for tensor in score_tensors]
    ctx.options = mask, score, scale, layout, deterministic, tile  # of the backward


def _differentiate(ctx: Any, out_gradient: torch.Tensor | None, lse_gradient: torch.Tensor | None) -> tuple:
    return _gradients(ctx, out_gradient, lse_gradient, torch.ops.flashspan.attention_backward.default)


def _gradients(ctx: Any, out_gradient: torch.Tensor | None, lse_gradient: torch.Tensor | None, backward: Any,
               **options: Any) -> tuple:
    """Of the operator's arguments, by `backward`: the operator, or what it runs, with its `options`."""
    query, key, value, sink, out, lse, *looked_up = ctx.saved_tensors
    mask, score, scale, layout, deterministic, tile = ctx.options
    mask_tensors, score_tensors = looked_up[:ctx.masks], looked_up[ctx.masks:]
    if out_gradient is None:
        out_gradient = torch.zeros_like(out)
    query_gradient, key_gradient, value_gradient, sink_gradient, score_gradients = backward(
        out_gradient, lse_gradient, query, key, value, sink, out, lse, mask, mask_tensors, score, score_tensors,
        ctx.score_gradients, scale, layout, deterministic, tile, **options)
    of_tensors = iter(score_gradients)
    of_score = [next(of_tensors).to(tensor.dtype) if wanted else None
                for tensor, wanted in zip(score_tensors, ctx.score_gradients)]
    return (query_gradient, key_gradient, value_gradient, None if sink is None else sink_gradient,
            None, [None] * len(mask_tensors),
            None, of_score, None, None, None, None, None)


class _AtOnce(torch.autograd.Function):
    """The operator's autograd, without the operator. Of `inputs`, the operator's arguments, those that autograd has to see
    come once more: it sees no tensors in tuples."""

    @staticmethod
    def forward(ctx: Any, query: Any, key: Any, value: Any, sink: Any, inputs: tuple, mask_values: int | None,
                *score_tensors: Any) -> tuple:
        output = _forward(*inputs, differentiable=True, keeps_memory=True, mask_values=mask_values)
        _keep(ctx, inputs, output)
        ctx.mask_values = mask_values
        return output

    @staticmethod
    def backward(ctx: Any, out_gradient: Any, lse_gradient: Any) -> tuple:
        is_plain = ((out_gradient is None or _is_plain(out_gradient)) and (lse_gradient is None or _is_plain(lse_gradient))
                    and not torch.is_grad_enabled())  # for a second derivative, which the operator refuses
        if is_plain and _nothing_watches():
            of_inputs = _gradients(ctx, out_gradient, lse_gradient, _backward, keeps_memory=True,
                                   mask_values=ctx.mask_values)
        else:
            of_inputs = _differentiate(ctx, out_gradient, lse_gradient)
        return (*of_inputs[:4], None, None, *of_inputs[7])


# Function.apply() looks for transforms of functorch first, which takes a fifth of the time; here there are none.
_differentiable_at_once = super(torch.autograd.Function, _AtOnce).apply


def _no_second_derivative(ctx: Any, *gradients: Any) -> tuple:
    raise UnsupportedError("attention", "a second derivative", "create_graph=False")


torch.library.register_autograd("flashspan::attention", _differentiate, setup_context=_keep)
torch.library.register_autograd("flashspan::attention_backward", _no_second_derivative)
