"""Functions and methods of torch and NumPy on traced values, and the interception of ``tensor[traced]``."""

from __future__ import annotations

import contextlib
import math
import re
import sys
from typing import Any

from .tensors import torch_module
from .traced import Lookup, Traced, refuse, where


def _floor(value: Traced) -> Traced:
    return value.__floor__()


def _divide(left: Traced, right: Any, rounding_mode: str | None = None) -> Traced:
    if rounding_mode is None:
        return left / right
    if rounding_mode != "floor":
        raise refuse(f"division with rounding_mode={rounding_mode!r}", "rounding_mode None or 'floor'")
    return left // right


def _clamp(value: Traced, min: Any = None, max: Any = None) -> Traced:
    if min is not None:
        value = value.maximum(min)
    return value if max is None else value.minimum(max)


def _extreme(name: str) -> Any:
    def function(left: Traced, right: Any = None) -> Traced:
        if right is None:
            raise refuse(f"the {name} of a row", "any() and all(); the language has no other reductions")
        return getattr(left, name)(right)
    return function


def _add(left: Traced, right: Any, alpha: Any = 1) -> Traced:
    return left + (right if alpha == 1 else Traced.of(left.trace, right) * alpha)


def _subtract(left: Traced, right: Any, alpha: Any = 1) -> Traced:
    return left - (right if alpha == 1 else Traced.of(left.trace, right) * alpha)


def _to(value: Traced, *arguments: Any, **keywords: Any) -> Traced:
    """Tensor.to, Tensor.type, array.astype: to a device is nothing, to a dtype or a type of Python's a conversion."""
    for target in (*arguments, *keywords.values()):
        name = getattr(target, "__name__", None) or str(target).removeprefix("torch.")
        if name.startswith(("float", "bfloat")):
            return value.as_real()
        if name.startswith(("int", "uint")):
            return value.as_int()
        if name in ("bool", "bool_"):
            return value.as_bool()
        if not _NO_CONVERSION.fullmatch(name):
            raise refuse(f"a conversion to {target}", "a dtype of torch or NumPy, or int, float or bool")
    return value


# Flags such as non_blocking and copy, and devices.
_NO_CONVERSION = re.compile(r"None|True|False|(preserve|contiguous)_format|(cpu|cuda|meta|mps|xpu)(:\d+)?")


def _constant(value: Traced, number: Any, dtype: Any) -> Traced:
    return _to(Traced.of(value.trace, number), dtype) if dtype is not None else Traced.of(value.trace, number)


def _unchanged(value: Traced, *_: Any, **__: Any) -> Traced:
    return value


def _forbidden(what: str, instead: str) -> Any:
    def function(*_: Any, **__: Any) -> Any:
        raise refuse(what, instead)
    return function


_NO_VALUE = _forbidden(".item() or .tolist() of a traced value", "arithmetic on it: its value differs from pair to pair")

# By the name of the function in torch, NumPy or of the method of a tensor.
_FUNCTIONS: dict[str, Any] = {
    "add": _add, "sub": _subtract, "subtract": _subtract,
    "mul": lambda a, b: a * b, "multiply": lambda a, b: a * b,
    "div": _divide, "divide": _divide, "true_divide": lambda a, b: a / b,
    "floor_divide": lambda a, b: a // b, "remainder": lambda a, b: a % b, "mod": lambda a, b: a % b,
    "neg": lambda a: -a, "negative": lambda a: -a, "positive": lambda a: +a,
    "abs": abs, "absolute": abs, "floor": _floor, "square": lambda a: a * a,
    "pow": lambda a, b: a ** b, "power": lambda a, b: a ** b, "rsqrt": lambda a: 1.0 / a.sqrt(),
    "reciprocal": lambda a: 1.0 / a,
    "exp": Traced.exp, "log": Traced.log, "sqrt": Traced.sqrt, "tanh": Traced.tanh,
    "exp2": lambda a: (a * math.log(2)).exp(), "log2": lambda a: a.log() * (1 / math.log(2)),
    "sigmoid": lambda a: 1.0 / (1.0 + (-a).exp()),
    "minimum": Traced.minimum, "maximum": Traced.maximum, "min": _extreme("minimum"), "max": _extreme("maximum"),
    "clamp": _clamp, "clip": _clamp,
    "clamp_min": lambda a, min: _clamp(a, min=min), "clamp_max": lambda a, max: _clamp(a, max=max),
    "eq": lambda a, b: a == b, "equal": lambda a, b: a == b, "ne": lambda a, b: a != b, "not_equal": lambda a, b: a != b,
    "lt": lambda a, b: a < b, "less": lambda a, b: a < b, "le": lambda a, b: a <= b, "less_equal": lambda a, b: a <= b,
    "gt": lambda a, b: a > b, "greater": lambda a, b: a > b,
    "ge": lambda a, b: a >= b, "greater_equal": lambda a, b: a >= b,
    "logical_and": lambda a, b: a.as_bool() & Traced.of(a.trace, b).as_bool(),
    "logical_or": lambda a, b: a.as_bool() | Traced.of(a.trace, b).as_bool(),
    "logical_xor": lambda a, b: a.as_bool() != Traced.of(a.trace, b).as_bool(),
    "logical_not": lambda a: ~a.as_bool(),
    "bitwise_and": lambda a, b: a & b, "bitwise_or": lambda a, b: a | b, "bitwise_xor": lambda a, b: a ^ b,
    "bitwise_not": lambda a: ~a, "invert": lambda a: ~a,
    "bitwise_left_shift": lambda a, b: a << b, "left_shift": lambda a, b: a << b,
    "bitwise_right_shift": lambda a, b: a >> b, "right_shift": lambda a, b: a >> b,
    "any": Traced.any, "all": Traced.all,
    "to": _to, "type": _to, "astype": _to, "type_as": _unchanged,
    "float": Traced.as_real, "half": Traced.as_real, "double": Traced.as_real, "bfloat16": Traced.as_real,
    "int": Traced.as_int, "long": Traced.as_int, "short": Traced.as_int, "bool": Traced.as_bool,
    "clone": _unchanged, "detach": _unchanged, "contiguous": _unchanged, "unsqueeze": _unchanged, "squeeze": _unchanged,
    "view": _unchanged, "reshape": _unchanged, "cpu": _unchanged, "cuda": _unchanged,
    "new_ones": lambda a, *_, dtype=None, **__: _constant(a, 1, dtype),
    "ones_like": lambda a, dtype=None, **_: _constant(a, 1, dtype),
    "new_zeros": lambda a, *_, dtype=None, **__: _constant(a, 0, dtype),
    "zeros_like": lambda a, dtype=None, **_: _constant(a, 0, dtype),
    "full_like": lambda a, number, dtype=None, **_: _constant(a, number, dtype),
    "item": _NO_VALUE, "tolist": _NO_VALUE, "numpy": _NO_VALUE,
}

# Attributes of tensors that are no functions.
_ATTRIBUTES: dict[str, Any] = {"shape": (), "ndim": 0, "device": None, "dtype": None, "requires_grad": False}

# Operators whose first operand is a tensor: reached through the tensor's own method.
_OPERATORS = {f"__{name}__" for name in (
    "add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "and", "or", "xor", "lshift", "rshift", "eq", "ne", "lt",
    "le", "gt", "ge")}


def method(value: Traced, name: str) -> Any:
    """The method or attribute `name` that a tensor has, for a traced value."""
    if name in _ATTRIBUTES:
        return _ATTRIBUTES[name]
    if name not in _FUNCTIONS:
        raise refuse(f".{name} of a traced value", f"one of {', '.join(sorted(_FUNCTIONS))}")
    function = _FUNCTIONS[name]
    return lambda *arguments, **keywords: function(value, *arguments, **keywords)


def call(function: Any, arguments: tuple, keywords: dict) -> Any:
    """A function of torch or NumPy, at least one of whose arguments is traced."""
    name = getattr(function, "__name__", str(function))
    arguments = arguments or tuple(keywords.pop(key) for key in ("input", "self") if key in keywords)
    keywords = {("other" if key == "x2" else key): value for key, value in keywords.items() if key != "out" or value}
    if "other" in keywords:
        arguments = (*arguments, keywords.pop("other"))
    run = _trace_of(arguments)
    if name == "__getitem__":
        tensor, index = arguments
        return (tensor if isinstance(tensor, Lookup) else Lookup(run, tensor, ()))[index]
    if name == "where":
        return where(*arguments, **keywords)
    if name == "__get__":  # an attribute that torch asks its own type for
        raise refuse("an attribute of a tensor and a traced value together", "arithmetic, comparisons and lookups")
    first = Traced.of(run, arguments[0])
    if name in _OPERATORS:
        return getattr(first, name)(*arguments[1:])
    reflected = name.startswith("__r") and f"__{name[3:]}" in _OPERATORS
    if reflected:
        return getattr(Traced.of(run, arguments[1]), f"__{name[3:]}")(first)
    if name not in _FUNCTIONS:
        raise refuse(f"{name}() of a traced value", f"one of where, {', '.join(sorted(_FUNCTIONS))}")
    return _FUNCTIONS[name](first, *arguments[1:], **keywords)


def _trace_of(arguments: tuple) -> Any:
    for argument in arguments:
        if isinstance(argument, (Traced, Lookup)):
            return argument.trace
        if isinstance(argument, (tuple, list)):
            found = _trace_of(tuple(argument))
            if found is not None:
                return found
    return None


def _is_known(result: Any, arguments: tuple) -> bool:
    """Whether a result tells of a tensor among `arguments` nothing but where and of which type it is, or is that tensor."""
    return type(result).__name__ in ("device", "dtype") or any(result is argument for argument in arguments)


def interception(run: Any) -> Any:
    """While it is entered, indexing a torch tensor by a traced value is a lookup, and what else the callable asks tensors for is
    noted."""
    torch = torch_module()
    if torch is None:
        return contextlib.nullcontext()
    from torch.overrides import TorchFunctionMode

    class Interception(TorchFunctionMode):
        def __torch_function__(self, function: Any, types: Any, arguments: tuple = (), keywords: Any = None) -> Any:
            keywords = keywords or {}
            is_traced = _trace_of((*arguments, *keywords.values())) is not None
            if function is torch.Tensor.__getitem__ and is_traced:
                return Lookup(run, arguments[0], ())[arguments[1]]
            result = function(*arguments, **keywords)
            by_callable = not sys._getframe(1).f_globals.get("__name__", "").startswith(f"{__package__}.")
            if by_callable and not is_traced and not _is_known(result, arguments):
                run.asked.append(function.__name__)
            return result

    return Interception()
