"""Masks and scores from Python callables: the callable runs once on traced values, which write down what is done to them.

A traced value stands for one (batch, head, query, key). Tensors that the callable captures become lookups by reference:
their values stay where they are and may change between calls.
"""

from __future__ import annotations

import inspect
import itertools
import re
import sys
from collections.abc import Callable, Collection
from typing import Any

from . import trace_torch
from .tensors import as_looked_up, torch_module
from .traced import Lookup, Traced, refuse

INDICES = ("b", "h", "q", "k")

# Names of the mask language, which a tensor cannot have.
_RESERVED = {*INDICES, "q_len", "kv_len", "score", "min", "max", "abs", "where", "float", "tanh", "exp", "log", "sqrt",
             "any", "range"}


class Trace:
    """One run of a callable: the tensors it looked up, by name, in order of their first use; the sizes of theirs (tensor, axis)
    that are numbers in the text; and the functions by which it asked tensors for more than lookups."""

    def __init__(self, names: dict[int, str], taken: Collection[str]) -> None:
        self.tensors: dict[str, Any] = {}
        self.sizes: list[tuple[Any, int]] = []
        self.asked: list[str] = []
        self._names = names
        self._taken = taken
        self._by_identity: dict[int, tuple[str, Any]] = {}  # with the object, so that no other takes its identity
        self._loops = itertools.count()

    def name_of(self, tensor: Any) -> str:
        """The name that `tensor` is looked up by."""
        known = self._by_identity.get(id(tensor))
        if known is not None:
            return known[0]
        name = self._names.get(id(tensor), "tensor")
        for number in itertools.count():
            candidate = f"{name}{number or ''}"
            if candidate not in self.tensors and candidate not in self._taken:
                break
        self.tensors[candidate] = as_looked_up(tensor, candidate)
        self._by_identity[id(tensor)] = (candidate, tensor)
        return candidate

    def size_of(self, tensor: Any, axis: int) -> int:
        self.sizes.append((tensor, axis % len(tensor.shape)))
        return int(tensor.shape[axis])

    def keep_those_in(self, text: str) -> None:
        """Forgets tensors whose values the callable has made no use of."""
        used = set(re.findall(r"\w+", text))
        self.tensors = {name: tensor for name, tensor in self.tensors.items() if name in used}

    def new_loop_name(self) -> str:
        return f"r{next(self._loops)}_"


def trace(function: Callable[..., Any], with_score: bool, scalars: dict[str, int | float],
          tensors: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Text of the program that `function` computes, and the tensors it looks up.

    `function` takes (b, h, q, k), or with `with_score` (score, b, h, q, k), and `scalars` and `tensors` by keyword.
    """
    torch = torch_module()
    if torch is not None and torch.compiler.is_compiling():
        from . import trace_compiled

        found = trace_compiled.trace(function, with_score, scalars, tensors)
        if not isinstance(found, str):
            return found
        torch._dynamo.graph_break(msg=f"flashspan: a callable {found}; make its Mask or Score outside of the compiled function")
    # Behind a break of its graph, the compiler would go on to compile what runs here. Where nobody has imported it, which
    # takes seconds, nothing is being compiled.
    alone = torch.compiler.disable(run_traced) if torch is not None and "torch._dynamo" in sys.modules else run_traced
    text, run = alone(function, with_score, scalars, tensors)
    return text, run.tensors


def run_traced(function: Callable[..., Any], with_score: bool, scalars: dict[str, int | float],
               tensors: dict[str, Any]) -> tuple[str, Trace]:
    """`trace`, with all that is known of the run."""
    names = _names_of_captured(function)
    names.update({id(tensor): name for name, tensor in tensors.items()})
    run = Trace(names, taken=scalars)
    given: dict[str, Any] = {name: Traced(run, name, "real" if isinstance(value, float) else "int")
                             for name, value in scalars.items()}
    given.update({name: Lookup(run, tensor, ()) for name, tensor in tensors.items()})
    arguments = [Traced(run, name, "int") for name in INDICES]
    if with_score:
        arguments.insert(0, Traced(run, "score", "real"))
    with trace_torch.interception(run):
        result = function(*arguments, **given)
    text = _text_of_result(result, run, with_score)
    run.keep_those_in(text)
    return text, run


def lookup(tensor: Any, *indices: Any) -> Any:
    """``tensor[indices]`` inside a traced callable, for arrays whose own brackets cannot be traced (NumPy, lists).

    Outside a trace, where the indices are tensors or numbers, it is ``tensor[indices]``.
    """
    run = next((index.trace for index in indices if isinstance(index, Traced)), None)
    if run is None:
        return tensor[indices]
    return Lookup(run, as_looked_up(tensor, "array"), ())[indices]


def _text_of_result(result: Any, run: Trace, with_score: bool) -> str:
    result = Traced.of(run, result)
    if result.length is not None:
        raise refuse("a value for each element of a row", "one value: end with .any() or .all()")
    if not with_score and result.kind != "bool":
        raise refuse(f"a mask that returns a number ({result.text})", "a mask that returns a truth value")
    if with_score:
        result = result.as_number()
    return result.text


def _names_of_captured(function: Callable[..., Any]) -> dict[int, str]:
    """What the program calls the values that `function` and the functions it calls can reach, by identity."""
    names: dict[int, str] = {}
    seen: set[int] = set()

    def visit(value: Any) -> None:
        if not inspect.isfunction(value) or id(value) in seen:
            return
        seen.add(id(value))
        captured = inspect.getclosurevars(value)
        for name, found in {**captured.globals, **captured.nonlocals}.items():
            if hasattr(found, "shape"):
                names.setdefault(id(found), _usable(name))
            visit(found)

    try:
        visit(function)
    except (TypeError, ValueError):  # cells that are still empty, callables without code
        pass
    return names


def _usable(name: str) -> str:
    return name if name.isascii() and name.isidentifier() and name not in _RESERVED else "tensor"

