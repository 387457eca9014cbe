"""Tensors as the library sees them: torch tensors and NumPy arrays described by address, dtype, shape and strides."""

from __future__ import annotations

import math
import sys
from typing import TYPE_CHECKING, Any

from .errors import BadArgumentError

if TYPE_CHECKING:
    import numpy
    import torch

    Array = torch.Tensor | numpy.ndarray

# By the name of the dtype in torch and NumPy (ml_dtypes adds bfloat16 to NumPy).
_DTYPES = {"float32": "f32", "float16": "f16", "bfloat16": "bf16", "int32": "i32"}
# A looked-up tensor of these is read through a copy of another dtype, made anew for every call.
_CONVERTED = {"bool": "int32", "uint8": "int32", "int8": "int32", "int16": "int32", "uint16": "int32",
              "int64": "int32", "float64": "float32"}


def torch_module() -> Any:
    """torch if the program has imported it, else None: a torch tensor cannot come from a program that has not."""
    return sys.modules.get("torch")


def is_torch(tensor: Any) -> bool:
    torch = torch_module()
    return torch is not None and isinstance(tensor, torch.Tensor)


def is_numpy(array: Any) -> bool:
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(array, numpy.ndarray)


def dtype_name(tensor: Any) -> str:
    """``"float32"``, ``"bfloat16"``, ``"int32"``, ... of a torch tensor or NumPy array."""
    return str(tensor.dtype).removeprefix("torch.")


def cuda_device(tensor: Any) -> int:
    """Index of the CUDA device that holds `tensor`; -1 for the CPU."""
    if not is_torch(tensor):
        return -1
    device = tensor.device
    if device.type == "cpu":
        return -1
    if device.type != "cuda":
        raise BadArgumentError("device", str(device), "tensors on the CPU or on a CUDA device")
    return device.index or 0


def library_dtype(tensor: Any, argument: str) -> str:
    name = dtype_name(tensor)
    taken = [dtype for dtype in _DTYPES if dtype != "int32" or argument not in ("query", "key", "value")]
    if name not in taken:
        raise BadArgumentError(argument, f"dtype {name}", ", ".join(taken))
    return _DTYPES[name]


def address_of(tensor: Any) -> int:
    return tensor.data_ptr() if is_torch(tensor) else tensor.__array_interface__["data"][0]


def strides_of(tensor: Any) -> tuple[int, ...]:
    """In elements."""
    if is_torch(tensor):
        return tensor.stride()
    size = tensor.itemsize
    if any(stride % size for stride in tensor.strides):
        raise BadArgumentError("strides", f"{tensor.strides} bytes", f"multiples of the element's {size} bytes")
    return tuple(stride // size for stride in tensor.strides)


def description(tensor: Any, argument: str, bshd: bool = False) -> tuple:
    """What the extension takes for a tensor; with `bshd`, a [B, S, H, D] tensor seen as [B, H, S, D]."""
    shape, strides = tuple(tensor.shape), tuple(strides_of(tensor))
    if bshd:
        shape, strides = ((s[0], s[2], s[1], s[3]) for s in (shape, strides))
    return address_of(tensor), library_dtype(tensor, argument), shape, strides, cuda_device(tensor)


def outline(tensor: Any) -> tuple:
    """A description without memory, for checks of a program: in the dtype in which the library will read it, row-major."""
    name = dtype_name(tensor)
    dtype = _DTYPES[_CONVERTED.get(name, name)]
    shape = tuple(tensor.shape) or (1,)
    strides = tuple(math.prod(shape[axis + 1:]) for axis in range(len(shape)))
    return 0, dtype, shape, strides, cuda_device(tensor)


def as_looked_up(value: Any, name: str) -> Any:
    """`value` as a torch tensor or NumPy array that a mask or score can look up; memory is shared where it can be.

    Takes torch tensors, NumPy arrays, lists of numbers, and what speaks DLPack.
    """
    if not is_torch(value) and not is_numpy(value):
        value = _imported(value, name)
    dtype = dtype_name(value)
    if dtype not in _DTYPES and dtype not in _CONVERTED:
        raise BadArgumentError(name, f"dtype {dtype}", ", ".join([*_DTYPES, *_CONVERTED]))
    return value


def readable(array: Any) -> Any:
    """A NumPy array itself, or a copy of one that runs backwards or whose elements are not at multiples of their size."""
    forwards = all(stride >= 0 and stride % array.itemsize == 0 for stride in array.strides)
    aligned = address_of(array) % array.itemsize == 0
    return array if forwards and aligned else array.copy(order="C")


def converted(tensor: Any, name: str) -> Any:
    """`tensor` itself if the library can read it, else a copy that it can; one of no axis gets one.

    Integers of 64 bits have to fit into 32; on the CPU that is checked.
    """
    if len(tensor.shape) == 0:
        tensor = tensor.reshape(1)
    dtype = dtype_name(tensor)
    wanted = _CONVERTED.get(dtype)
    if wanted is None:
        return tensor if is_torch(tensor) else readable(tensor)
    if dtype == "int64" and cuda_device(tensor) < 0 and 0 not in tensor.shape and not _fits_32_bits(tensor):
        raise BadArgumentError(name, "integers of more than 32 bits", "values that int32 holds")
    return tensor.to(getattr(torch_module(), wanted)) if is_torch(tensor) else tensor.astype(wanted, order="C")


def _fits_32_bits(tensor: Any) -> bool:
    return bool(tensor.min() >= -2**31) and bool(tensor.max() < 2**31)


def _imported(value: Any, name: str) -> Any:
    if hasattr(value, "__dlpack__"):
        return from_dlpack(value, name)
    if isinstance(value, (list, tuple)):
        import numpy
        array = numpy.asarray(value)
        return array.astype("float32") if array.dtype.kind == "f" else array
    raise BadArgumentError(name, type(value).__name__, "a torch tensor, a NumPy array or another that speaks DLPack")


def from_dlpack(value: Any, argument: str) -> Any:
    """A torch tensor, or without torch a NumPy array, over the memory of `value`, which speaks DLPack."""
    try:
        import torch
        return torch.from_dlpack(value)
    except ImportError:
        import numpy
    try:
        return numpy.from_dlpack(value)
    except (BufferError, RuntimeError, TypeError) as failure:
        raise BadArgumentError(argument, f"{type(value).__name__} that NumPy cannot read ({failure})",
                               "memory of the CPU, or torch installed") from failure
