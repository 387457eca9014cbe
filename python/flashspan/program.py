"""What Mask and Score have in common: a description (text) of what is computed, and the tensors it reads.

The description names everything but the tensors' memory, so that it is a key for what was made from it, and passes through
torch's operators as a string.
"""

from __future__ import annotations

import json
import numbers
from collections.abc import Callable
from typing import Any

from . import _core
from .errors import BadArgumentError
from .tensors import as_looked_up, converted, cuda_device, description, is_torch, outline, torch_module
from .trace import trace

Node = dict[str, Any]


class Program:
    """Base of Mask and Score. Immutable; the tensors are shared, never copied, and kept alive.

    `values` names the values of the tensors, where they do not change: 0 if there are none, another number for each set; else None.
    """

    _with_score = False
    _parser: Any = None  # the extension's class

    def __init__(self, program: str | Callable[..., Any], **data: Any) -> None:
        scalars = {name: _number(value) for name, value in data.items() if isinstance(value, numbers.Real)}
        tensors = {name: as_looked_up(value, name) for name, value in data.items() if name not in scalars}
        if callable(program):
            text, tensors = trace(program, self._with_score, scalars, tensors)
        elif isinstance(program, str):
            text = program
        else:
            raise BadArgumentError(type(self).__name__.lower(), type(program).__name__, "text or a callable")
        self._set({"text": text, "tensors": list(tensors), "scalars": scalars}, tuple(tensors.values()))
        self._check()

    @classmethod
    def _of(cls, node: Node, tensors: tuple) -> Any:
        made = cls.__new__(cls)
        made._set(node, tensors)
        return made

    def _set(self, node: Node, tensors: tuple) -> None:
        self._node = node
        self.tensors = tensors
        self.values: int | None = None if tensors else 0
        self.description = _written(node)

    def _check(self) -> None:
        """Errors of the text are said where it is written, not where it is used."""
        torch = torch_module()
        if torch is None or not torch.compiler.is_compiling():
            _leaf(self._parser, self._node, iter([outline(tensor) for tensor in self.tensors]))

    def bound(self, sizes: tuple) -> Any:
        """The extension's Mask or Score, over memory that this program keeps alive. Its tensors are of dtypes that the
        library reads, as those of `on_host`."""
        return bound(self._parser, self.description, [description(tensor, "tensor") for tensor in self.tensors], sizes)

    def to(self, device: Any) -> Any:
        """The same with its tensors on `device` (as ``torch.Tensor.to``), copied where they are elsewhere."""
        torch = torch_module()
        if torch is None:
            raise BadArgumentError("device", str(device), "tensors of torch: without it there is only the CPU")
        moved = tuple((tensor if is_torch(tensor) else torch.as_tensor(tensor)).to(device) for tensor in self.tensors)
        return self._of(self._node, moved)

    def converted(self) -> Any:
        """The same over copies, made now, of those of its tensors whose dtype is none that the library reads; else every call
        makes them. Later values of the originals are not seen."""
        return self._of(self._node, tuple(converted(tensor, "tensor") for tensor in self.tensors))

    def on_host(self) -> Any:
        """The same with its tensors in host memory, in dtypes that the library reads."""
        host = self.to("cpu") if any(cuda_device(tensor) >= 0 for tensor in self.tensors) else self
        return host.converted()

    def __bool__(self) -> bool:
        """Neither true nor false: ``a and b`` would be `b` alone."""
        raise BadArgumentError(type(self).__name__, "its truth, in and, or, not or if", "&, | and ~ of masks, and `is None`")

    def __repr__(self) -> str:
        return f"{type(self).__name__}({_summary(self._node)})"


def bound(parser: Any, text: str, described: list[tuple], shape: tuple) -> Any:
    """The extension's Mask or Score for a description, the tensors it reads as `tensors.description` gives them, and the
    sizes of the call."""
    return _bound(parser, read(text), iter(described), shape)


def read(text: str) -> Node:
    """What a description describes."""
    return json.loads(text, strict=False)


def _bound(parser: Any, node: Node, tensors: Any, shape: tuple) -> Any:
    if "text" in node:
        return _leaf(parser, node, tensors)
    if "not" in node:
        return _bound(parser, node["not"], tensors, shape).inverse()
    for sign, method in (("and", "both"), ("or", "either")):
        if sign in node:
            left, right = (_bound(parser, part, tensors, shape) for part in node[sign])
            return getattr(left, method)(right)
    taken = [next(tensors) for _ in range(node["tensors"])]
    options = list(node["options"])
    if node["builder"] == "block_list":
        inside = node["predicate"]
        options.append(_bound(parser, inside, tensors, shape) if inside else None)
    return getattr(_core.Mask, node["builder"])(shape, *taken, *options)


def _leaf(parser: Any, node: Node, tensors: Any) -> Any:
    return parser.parse(node["text"], [(name, next(tensors)) for name in node["tensors"]], node["scalars"])


def _written(value: Any) -> str:
    """`value` as JSON for `read`. As json.dumps, but torch's compiler can follow it into a constant of its graph."""
    if isinstance(value, str):
        escaped = value.replace("\\", "\\\\").replace('"', '\\"')
        return f'"{escaped}"'
    if isinstance(value, dict):
        return "{" + ", ".join([f"{_written(key)}: {_written(item)}" for key, item in value.items()]) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join([_written(item) for item in value]) + "]"
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    text = repr(constant(value))
    return {"inf": "Infinity", "-inf": "-Infinity", "nan": "NaN"}.get(text, text)


def constant(number: Any) -> Any:
    """`number`, of which torch's compiler may have made a symbol: its value, by which the graph is guarded from then on, as that of a
    key of a dictionary is."""
    value, = {number: None}
    return value


def _number(value: Any) -> int | float:
    return int(value) if isinstance(value, numbers.Integral) else float(value)


def _summary(node: Node) -> str:
    if "text" in node:
        return ", ".join([repr(node["text"]), *node["tensors"], *(f"{k}={v}" for k, v in node["scalars"].items())])
    if "not" in node:
        return f"~({_summary(node['not'])})"
    for sign, shown in (("and", " & "), ("or", " | ")):
        if sign in node:
            return shown.join(f"({_summary(part)})" for part in node[sign])
    return node["builder"]
