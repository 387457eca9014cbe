"""Masks and scores from callables inside a function that torch compiles.

The compiler cannot follow a trace, so the callable is traced beside it, and the text that comes out is a constant of the graph.
What the text depends on is reached once more where the compiler looks: the tensors become inputs of the graph, and by code,
numbers and sizes it is guarded, so that others are traced anew.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

import torch

from .trace import Trace, run_traced

# What these modules hold is taken to stay what it is.
_FIXED = ("torch", "numpy", "math", "operator", "builtins", "flashspan")
_CONSTANTS = (bool, int, float, str, torch.dtype, torch.device)


def trace(function: Callable[..., Any], with_score: bool, scalars: dict[str, int | float],
          tensors: dict[str, Any]) -> tuple[str, dict[str, Any]] | str:
    """As `trace.trace`, or in words why it has to be done outside of the compiled function."""
    reached, constants = list(tensors.values()), []  # type: ignore[var-annotated]
    if not _reach(function, reached, constants, []):
        return "that is made inside, or captures more than tensors, numbers and functions, cannot be traced inside"
    kinds = [(name, isinstance(value, float)) for name, value in scalars.items()]
    refusal, text, looked_up, sizes, expected = _traced(function, with_score, kinds, list(tensors), *tensors.values())
    if refusal:
        return refusal
    unchanged = (all([constant == wanted for constant, wanted in zip(constants, expected)])
                 and all([reached[place].shape[axis] == size for place, axis, size in sizes]))
    if not unchanged:  # always equal, when it is compiled; compared to be guards of the graph
        return "has changed while it was traced"
    return text, {name: reached[place] for name, place in looked_up}


def _reach(value: Any, tensors: list, constants: list, seen: list) -> bool:
    """Appends the tensors and constants that `value` leads to. False if it leads to what might change without notice."""
    if isinstance(value, torch.Tensor):
        tensors.append(value)
        return True
    if value is None or isinstance(value, _CONSTANTS):
        constants.append(value)
        return True
    if isinstance(value, (tuple, list)):
        return all([_reach(item, tensors, constants, seen) for item in value])
    if isinstance(value, types.ModuleType):
        return _is_fixed(value.__name__)
    if isinstance(value, (types.BuiltinFunctionType, type)):
        return _is_fixed(value.__module__ or "builtins")
    if not isinstance(value, types.FunctionType) or _is_made_inside(value):
        return False
    if any([value is other for other in seen]):
        return True
    seen.append(value)
    return all([_reach(item, tensors, constants, seen) for item in _captured(value)])


def _is_made_inside(function: Any) -> bool:
    """Whether the compiler has a function's code alone: then it has no closure, or one although it needs none."""
    return not hasattr(function, "__closure__") or (function.__closure__ is not None) != (len(function.__code__.co_freevars) > 0)


def _captured(function: Any) -> list:
    """What a function's code can name besides its arguments and builtins; of one of torch's, such as or_masks() makes, what was
    given to it."""
    captured = [*[cell.cell_contents for cell in function.__closure__ or ()], *(function.__defaults__ or ()),
                *(function.__kwdefaults__ or {}).values()]
    if _is_fixed(function.__module__ or ""):
        return captured
    return [*captured, *[function.__globals__[name] for name in _names_in(function.__code__) if name in function.__globals__]]


@torch.compiler.assume_constant_result
def _names_in(code: types.CodeType) -> tuple[str, ...]:
    """Global names, and those of attributes, in a function and in those that are written inside it."""
    inside = [name for part in code.co_consts if isinstance(part, types.CodeType) for name in _names_in(part)]
    return tuple(dict.fromkeys([*code.co_names, *inside]))


def _is_fixed(module: str) -> bool:
    return module.split(".")[0] in _FIXED


@torch.compiler.assume_constant_result
def _traced(function: Callable[..., Any], with_score: bool, kinds: list, names: list, *tensors: Any) -> tuple:
    """("" or why it cannot be done, text, (name, place in what is reached) of the tensors that are looked up, (place, axis, size)
    of the sizes that were used, constants that are reached). Runs beside the compiler, on real values."""
    keyword, reached, constants = dict(zip(names, tensors)), list(tensors), []  # type: ignore[var-annotated]
    _reach(function, reached, constants, [])
    places = {id(tensor): place for place, tensor in reversed(list(enumerate(reached)))}
    scalars = {name: 0.0 if is_real else 0 for name, is_real in kinds}
    try:
        text, run = run_traced(function, with_score, scalars, keyword)
    except Exception as error:  # raised again, as it is, where the callable is traced outside of the compiler
        return f"that raises {type(error).__name__} cannot be traced inside", "", (), (), ()
    if run.asked or any(id(tensor) not in places for tensor in run.tensors.values()):
        return f"that asks tensors for more than lookups ({', '.join(run.asked)}) cannot be traced inside", "", (), (), ()
    looked_up = tuple((name, places[id(tensor)]) for name, tensor in run.tensors.items())
    return "", text, looked_up, _sizes(run, places), tuple(constants)


def _sizes(run: Trace, places: dict[int, int]) -> tuple:
    return tuple((places[id(tensor)], axis, int(tensor.shape[axis])) for tensor, axis in run.sizes)
