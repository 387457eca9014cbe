"""Traced values: numbers and truth values that write down the mask language's text of what is done to them."""

from __future__ import annotations

import linecache
import math
import numbers
import sys
from typing import Any

from . import bit_fields
from .errors import TraceError
from .tensors import is_numpy, is_torch

# How tightly the text of a value holds together, loosest first; as in Python.
_COMPARISON, _OR, _AND, _SUM, _PRODUCT, _UNARY, _ATOM = range(7)

# Stands for the loop variable in the text of a value for each element of a row; named when the row is reduced.
_LOOP = "@"


_LARGEST_POWER = 64  # each power is a factor in the text


def refuse(got: str, takes: str) -> TraceError:
    """An error that points at the line of the callable which is being run."""
    frame = sys._getframe(1)
    while frame.f_back is not None and _is_ours(frame.f_globals.get("__name__", "")):
        frame = frame.f_back
    file, number = frame.f_code.co_filename, frame.f_lineno
    line = linecache.getline(file, number, frame.f_globals).strip()
    return TraceError("traced callable", got, takes, f"at {file}:{number}" + (f"\n    {line}" if line else ""))


def _is_ours(module: str) -> bool:
    return module.split(".")[0] in ("flashspan", "torch", "numpy", "math") and not module.startswith("flashspan.tests")


class Traced:
    """A value of the program: its text and its kind, ``"int"``, ``"real"`` or ``"bool"``.

    `length` is the number of elements if it is a value for each element of a row (what ``table[q] == k`` is for a table
    of rank 2), which ``.any()`` and ``.all()`` reduce. `fields` are the bits an integer is made of, where known.
    """

    __slots__ = ("trace", "text", "kind", "binding", "length", "fields", "quotient")

    def __init__(self, trace: Any, text: str, kind: str, binding: int = _ATOM, length: int | None = None) -> None:
        self.trace, self.text, self.kind, self.binding, self.length = trace, text, kind, binding, length
        self.fields: bit_fields.Fields | None = None
        self.quotient: tuple[Traced, Traced] | None = None  # the integers it is a quotient of

    @staticmethod
    def of(trace: Any, value: Any) -> Traced:
        """`value` as a traced one: numbers as they are, tensors of one element as lookups."""
        if isinstance(value, Traced):
            return value
        if isinstance(value, Lookup):
            return value.value()
        if is_torch(value) or is_numpy(value):
            return _single_element(trace, value)
        if isinstance(value, bool) or type(value).__name__ in ("bool_", "bool"):  # of NumPy, whose name has changed
            return Traced(trace, str(bool(value)), "bool")
        if isinstance(value, numbers.Integral):
            return Traced(trace, str(int(value)), "int", _UNARY if value < 0 else _ATOM)
        if isinstance(value, numbers.Real):
            return _real(trace, float(value))
        raise refuse(f"a value of type {type(value).__name__}", "numbers, truth values and tensors")

    # -- numbers

    def as_number(self) -> Traced:
        """A truth value as 1 or 0."""
        return _call("where", "int", self, 1, 0) if self.kind == "bool" else self

    def as_bool(self) -> Traced:
        return self if self.kind == "bool" else self != 0

    def as_real(self) -> Traced:
        number = self.as_number()
        return number if number.kind == "real" else _call("float", "real", number)

    def as_int(self) -> Traced:
        number = self.as_number()
        if number.kind != "int":
            raise refuse("a real number made an integer", "integers from the start: use // to divide")
        return number

    def __add__(self, other: Any) -> Traced:
        return _arithmetic(self, "+", other, _SUM)

    def __radd__(self, other: Any) -> Traced:
        return Traced.of(self.trace, other) + self

    def __sub__(self, other: Any) -> Traced:
        return _arithmetic(self, "-", other, _SUM)

    def __rsub__(self, other: Any) -> Traced:
        return Traced.of(self.trace, other) - self

    def __mul__(self, other: Any) -> Traced:
        return _arithmetic(self, "*", other, _PRODUCT)

    def __rmul__(self, other: Any) -> Traced:
        return Traced.of(self.trace, other) * self

    def __truediv__(self, other: Any) -> Traced:
        left, right = self.as_number(), Traced.of(self.trace, other).as_number()
        divided = _arithmetic(left, "/", right, _PRODUCT, kind="real")
        if left.kind == right.kind == "int":
            divided.quotient = (left, right)
        return divided

    def __rtruediv__(self, other: Any) -> Traced:
        return Traced.of(self.trace, other) / self

    def __floordiv__(self, other: Any) -> Traced:
        return _integers(self, "//", other)

    def __rfloordiv__(self, other: Any) -> Traced:
        return Traced.of(self.trace, other) // self

    def __mod__(self, other: Any) -> Traced:
        return _integers(self, "%", other)

    def __rmod__(self, other: Any) -> Traced:
        return Traced.of(self.trace, other) % self

    def __pow__(self, exponent: Any) -> Traced:
        """Of a whole number: a product, right for any base. Of another, or one that is traced: of positive bases."""
        if not isinstance(exponent, numbers.Real):
            return (self.log() * exponent).exp()
        if exponent == 0.5:
            return self.sqrt()
        whole = int(float(exponent)) if float(exponent).is_integer() else None
        if whole is None:
            return (self.log() * float(exponent)).exp()
        if abs(whole) > _LARGEST_POWER:
            raise refuse(f"a power of {whole}", f"whole powers up to {_LARGEST_POWER}")
        product = _product_of(self.as_number(), abs(whole))
        return product if whole >= 0 else 1.0 / product

    def __rpow__(self, base: Any) -> Traced:
        if not isinstance(base, numbers.Real) or base <= 0:
            raise refuse(f"{base!r} raised to a traced power", "a base that is a positive number")
        if isinstance(base, numbers.Integral) and self.kind == "int":
            raise refuse(f"the integer {base} raised to a traced integer, which would not be exact",
                         f"{float(base)} as base, for a real number, or a tensor of the powers, looked up")
        return (self * math.log(base)).exp()

    def __rlshift__(self, bits: Any) -> Traced:
        raise refuse(f"{bits!r} shifted by a traced value", "a number of bits that is known when the mask is made")

    __rrshift__ = __rlshift__

    def __neg__(self) -> Traced:
        number = self.as_number()
        return _like(number, "-" + _held(number, _UNARY), number.kind, _UNARY)

    def __pos__(self) -> Traced:
        return self.as_number()

    def __abs__(self) -> Traced:
        number = self.as_number()
        return _call("abs", number.kind, number)

    def __floor__(self) -> Traced:
        if self.kind == "int":
            return self
        if self.quotient is None:
            raise refuse("the floor of a real number", "the floor of a quotient of integers: a // b")
        return self.quotient[0] // self.quotient[1]

    def exp(self) -> Traced:
        return _call("exp", "real", self.as_number())

    def log(self) -> Traced:
        return _call("log", "real", self.as_number())

    def sqrt(self) -> Traced:
        return _call("sqrt", "real", self.as_number())

    def tanh(self) -> Traced:
        return _call("tanh", "real", self.as_number())

    def minimum(self, other: Any) -> Traced:
        return _extreme("min", self, other)

    def maximum(self, other: Any) -> Traced:
        return _extreme("max", self, other)

    # -- bits of integers, logic of truth values

    def __and__(self, other: Any) -> Traced:
        return _logic(self, "&", other, _AND, bit_fields.masked)

    def __or__(self, other: Any) -> Traced:
        return _logic(self, "|", other, _OR, bit_fields.joined)

    def __xor__(self, other: Any) -> Traced:
        other = Traced.of(self.trace, other)
        if self.kind == other.kind == "bool":
            return self != other
        return _of_fields(self, bit_fields.joined(self, other))

    __rand__, __ror__, __rxor__ = __and__, __or__, __xor__

    def __lshift__(self, bits: Any) -> Traced:
        if self.fields is not None and isinstance(bits, int):
            return _of_fields(self, bit_fields.shifted(self.fields, bits))
        return self * (1 << _shift(bits))

    def __rshift__(self, bits: Any) -> Traced:
        if self.fields is not None and isinstance(bits, int):
            return _of_fields(self, bit_fields.shifted(self.fields, -bits))
        return self // (1 << _shift(bits))

    def __invert__(self) -> Traced:
        if self.kind != "bool":
            raise refuse("~ of a number", "a truth value; there is no complement of bits")
        return _like(self, "~" + _held(self, _UNARY), "bool", _UNARY)

    # -- comparisons

    def __eq__(self, other: Any) -> Traced:  # type: ignore[override]
        return _comparison(self, "==", other)

    def __ne__(self, other: Any) -> Traced:  # type: ignore[override]
        return _comparison(self, "!=", other)

    def __lt__(self, other: Any) -> Traced:
        return _comparison(self, "<", other)

    def __le__(self, other: Any) -> Traced:
        return _comparison(self, "<=", other)

    def __gt__(self, other: Any) -> Traced:
        return _comparison(self, ">", other)

    def __ge__(self, other: Any) -> Traced:
        return _comparison(self, ">=", other)

    __hash__ = object.__hash__

    # -- rows

    def any(self, dim: int = -1) -> Traced:
        """True if any element of the row is."""
        del dim  # there is one axis
        value = self.as_bool()
        if value.length is None:
            return value
        loop = self.trace.new_loop_name()
        return Traced(self.trace, f"any({value.text.replace(_LOOP, loop)} for {loop} in range({value.length}))", "bool")

    def all(self, dim: int = -1) -> Traced:
        """True if all elements of the row are."""
        return ~((~self.as_bool()).any(dim))

    # -- what tensors and NumPy ask

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, arguments: tuple = (), keywords: dict | None = None) -> Any:
        from . import trace_torch

        return trace_torch.call(function, arguments, keywords or {})

    def __array_ufunc__(self, function: Any, method: str, *arguments: Any, **keywords: Any) -> Any:
        from . import trace_torch

        if method != "__call__":
            raise refuse(f"numpy.{function.__name__}.{method}", "elementwise functions")
        return trace_torch.call(function, arguments, keywords)

    def __array_function__(self, function: Any, types: Any, arguments: tuple, keywords: dict) -> Any:
        from . import trace_torch

        return trace_torch.call(function, arguments, keywords)

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise refuse("a traced value used as an index or element of a NumPy array", "flashspan.lookup(array, index)")

    def __getattr__(self, name: str) -> Any:
        from . import trace_torch

        if name.startswith("__"):
            raise AttributeError(name)
        return trace_torch.method(self, name)

    # -- what cannot be traced

    def __bool__(self) -> bool:
        raise refuse(
            "the truth of a traced value (in if, and, or, not, a chained comparison, min or max)",
            "flashspan.where(c, a, b) for a choice, & | ~ for logic, (a <= x) & (x < b) for a chain, "
            "flashspan.minimum and flashspan.maximum")

    def __int__(self) -> int:
        raise refuse("a traced value made a number", "arithmetic on it: its value differs from pair to pair")

    __float__ = __index__ = __complex__ = __round__ = __trunc__ = __ceil__ = __int__

    def __iter__(self) -> Any:
        raise refuse("iteration over a traced value", "loops over numbers that are known when the mask is made")

    def __len__(self) -> int:
        raise refuse("the length of a traced value", "numbers that are known when the mask is made")

    def __contains__(self, item: Any) -> bool:
        raise refuse("`in` with a traced value", "comparisons joined by |")

    def __getitem__(self, index: Any) -> Any:
        raise refuse("an index into a traced number", "indices into tensors")

    def __repr__(self) -> str:
        return f"Traced({self.text})"


class Lookup:
    """A tensor and the indices it got so far. With all of them it is a value, with all but one a value for each element
    of its last axis."""

    __slots__ = ("trace", "tensor", "indices")

    def __init__(self, trace: Any, tensor: Any, indices: tuple) -> None:
        self.trace, self.tensor, self.indices = trace, tensor, indices

    def __getitem__(self, index: Any) -> Any:
        rank = len(self.tensor.shape)
        given = index if isinstance(index, tuple) else (index,)
        new = self.indices + tuple(item for item in given if item is not Ellipsis)
        if any(item is Ellipsis for item in given[:-1]) and len(new) < rank:
            raise refuse("an ellipsis that stands for axes before an index", "one number an axis, from the first axis on")
        if len(new) > rank:
            raise refuse(f"{len(new)} indices into a tensor of rank {rank}", "one index an axis")
        for item in new:
            if isinstance(item, slice) or item is None:
                raise refuse("a slice or new axis in a traced lookup", "one number an axis, from the first axis on")
        found = Lookup(self.trace, self.tensor, new)
        return found.value() if len(new) == rank else found

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the axes that have no index yet. The mask is traced anew for tensors of other sizes."""
        return tuple(self.trace.size_of(self.tensor, axis) for axis in range(len(self.indices), len(self.tensor.shape)))

    @property
    def ndim(self) -> int:
        return len(self.tensor.shape) - len(self.indices)

    def value(self) -> Traced:
        """Error unless all axes but the last, or all, have an index."""
        rank, name = len(self.tensor.shape), self.trace.name_of(self.tensor)
        if rank == 0:
            return _typed(Traced(self.trace, f"{name}[0]", "int"), self.tensor)
        if len(self.indices) < rank - 1:
            raise refuse(f"{len(self.indices)} indices into the tensor '{name}' of rank {rank}", "one index an axis")
        indices = [self._index(axis, item) for axis, item in enumerate(self.indices)]
        length = None
        if len(indices) == rank - 1:
            length = self.trace.size_of(self.tensor, -1)
            indices.append(Traced(self.trace, _LOOP, "int", length=length))
        for index in indices:
            length = _common_length(length, index.length)
        text = f"{name}[{', '.join(index.text for index in indices)}]"
        return _typed(Traced(self.trace, text, "int", length=length), self.tensor)

    def _index(self, axis: int, item: Any) -> Traced:
        if isinstance(item, int) and not isinstance(item, bool) and item < 0:
            item += self.trace.size_of(self.tensor, axis)  # counts from the end
        return Traced.of(self.trace, item).as_int()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.value(), name)


def _of_row(name: str) -> Any:
    return lambda self, *others: getattr(self.value(), name)(*others)


for _name in ("add", "radd", "sub", "rsub", "mul", "rmul", "truediv", "rtruediv", "floordiv", "rfloordiv", "mod", "rmod",
              "pow", "rpow", "neg", "pos", "abs", "and", "or", "xor", "rand", "ror", "rxor", "lshift", "rshift", "invert",
              "eq", "ne", "lt", "le", "gt", "ge", "bool", "int", "float", "index", "iter", "len", "array_ufunc"):
    setattr(Lookup, f"__{_name}__", _of_row(f"__{_name}__"))
Lookup.__hash__ = object.__hash__  # type: ignore[method-assign]
Lookup.__torch_function__ = Traced.__torch_function__  # type: ignore[attr-defined]


def _trace_among(*values: Any) -> Any:
    """That of the first traced one; None if all are known when the mask is made."""
    return next((value.trace for value in values if isinstance(value, (Traced, Lookup))), None)


def where(condition: Any, chosen: Any, otherwise: Any) -> Any:
    """`chosen` where `condition` is true, else `otherwise`: the choice for traced callables, which cannot use ``if``. Of values that
    are known when the mask is made, none of them traced, the one it is."""
    trace = _trace_among(condition, chosen, otherwise)
    if trace is None:
        return chosen if condition else otherwise
    condition, chosen, otherwise = (Traced.of(trace, value) for value in (condition, chosen, otherwise))
    if not chosen.kind == otherwise.kind == "bool":
        chosen, otherwise = chosen.as_number(), otherwise.as_number()
    kind = "real" if "real" in (chosen.kind, otherwise.kind) else chosen.kind
    return _call("where", kind, condition.as_bool(), chosen, otherwise)


def minimum(left: Any, right: Any) -> Any:
    """The smaller of `left` and `right`, traced or known when the mask is made."""
    trace = _trace_among(left, right)
    return min(left, right) if trace is None else Traced.of(trace, left).minimum(right)


def maximum(left: Any, right: Any) -> Any:
    """The larger of `left` and `right`, traced or known when the mask is made."""
    trace = _trace_among(left, right)
    return max(left, right) if trace is None else Traced.of(trace, left).maximum(right)


def _single_element(trace: Any, tensor: Any) -> Traced:
    if len(tensor.shape) > 1 or (len(tensor.shape) == 1 and tensor.shape[0] != 1):
        raise refuse(f"a whole tensor of shape {tuple(tensor.shape)} as a number", "an index for each axis, or one element")
    return Lookup(trace, tensor, (0,) * len(tensor.shape)).value()


def _typed(looked_up: Traced, tensor: Any) -> Traced:
    """Integers, reals and truth values, which are looked up as integers."""
    dtype = str(tensor.dtype).removeprefix("torch.")
    looked_up.kind = "real" if "float" in dtype else "int"
    return looked_up != 0 if dtype == "bool" else looked_up


def _real(trace: Any, number: float) -> Traced:
    if not math.isfinite(number):
        raise refuse(f"the number {number}", "finite numbers; pairs are hidden by the mask, not by a score of -inf")
    return Traced(trace, repr(number), "real", _UNARY if number < 0 else _ATOM)


def _held(value: Traced, binding: int) -> str:
    """Text of an operand that has to hold together at least as tightly as `binding`."""
    return value.text if value.binding >= binding else f"({value.text})"


def _common_length(left: int | None, right: int | None) -> int | None:
    if left is not None and right is not None and left != right:
        raise refuse(f"rows of {left} and of {right} elements together", "rows of one length")
    return left if right is None else right


def _like(value: Traced, text: str, kind: str, binding: int) -> Traced:
    return Traced(value.trace, text, kind, binding, value.length)


def _binary(left: Traced, sign: str, right: Traced, kind: str, binding: int) -> Traced:
    text = f"{_held(left, binding)} {sign} {_held(right, binding + 1)}"
    return Traced(left.trace, text, kind, binding, _common_length(left.length, right.length))


def _arithmetic(left: Traced, sign: str, right: Any, binding: int, kind: str | None = None) -> Traced:
    left, right = left.as_number(), Traced.of(left.trace, right).as_number()
    return _binary(left, sign, right, kind or ("real" if "real" in (left.kind, right.kind) else "int"), binding)


def _integers(left: Traced, sign: str, right: Any) -> Traced:
    left, right = left.as_number(), Traced.of(left.trace, right).as_number()
    if "real" in (left.kind, right.kind):
        raise refuse(f"{sign} of a real number", f"integers on both sides of {sign}")
    return _binary(left, sign, right, "int", _PRODUCT)


def _comparison(left: Traced, sign: str, right: Any) -> Traced:
    right = Traced.of(left.trace, right)
    if not (left.kind == right.kind == "bool" and sign in ("==", "!=")):
        left, right = left.as_number(), right.as_number()
    text = f"{_held(left, _OR)} {sign} {_held(right, _OR)}"
    return Traced(left.trace, text, "bool", _COMPARISON, _common_length(left.length, right.length))


def _logic(left: Traced, sign: str, right: Any, binding: int, of_bits: Any) -> Traced:
    right = Traced.of(left.trace, right)
    if left.kind == right.kind == "bool":
        return _binary(left, sign, right, "bool", binding)
    if "real" in (left.kind, right.kind):
        raise refuse(f"{sign} of a real number", "truth values; comparisons need parentheses: (a >= b) & (c == d)")
    if "bool" in (left.kind, right.kind):
        left, right = left.as_number(), right.as_number()
    return _of_fields(left, of_bits(left, right))


def _of_fields(like: Traced, fields: bit_fields.Fields | None) -> Traced:
    if fields is None:
        raise refuse("bits of two integers together that may overlap, or bits chosen by a traced value",
                     "& with a number that is known when the mask is made, and | of disjoint bits")
    total: Traced = Traced.of(like.trace, 0)
    for number, (base, low, width, to) in enumerate(bit_fields.runs(fields)):
        part = base if low == 0 else base // (1 << low)
        part = part % (1 << width) if to == 0 else part % (1 << width) * (1 << to)
        total = part if number == 0 else total + part
    result = Traced(total.trace, total.text, "int", total.binding, total.length)
    result.fields = fields
    return result


def _product_of(number: Traced, factors: int) -> Traced:
    if factors == 0:
        return Traced.of(number.trace, 1 if number.kind == "int" else 1.0)
    product = number
    for _ in range(factors - 1):
        product = product * number
    return product


def _shift(bits: Any) -> int:
    if not isinstance(bits, int) or not 0 <= bits < 63:
        raise refuse("a shift by a traced value", "a number of bits that is known when the mask is made")
    return bits


def _call(name: str, kind: str, *arguments: Any) -> Traced:
    trace = next(argument.trace for argument in arguments if isinstance(argument, Traced))
    values = [Traced.of(trace, argument) for argument in arguments]
    length = None
    for value in values:
        length = _common_length(length, value.length)
    return Traced(trace, f"{name}({', '.join(value.text for value in values)})", kind, _ATOM, length)


def _extreme(name: str, left: Traced, right: Any) -> Traced:
    left, right = left.as_number(), Traced.of(left.trace, right).as_number()
    return _call(name, "real" if "real" in (left.kind, right.kind) else "int", left, right)
