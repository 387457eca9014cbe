"""Attention of NumPy arrays, on the CPU."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from . import calls
from .errors import BadArgumentError
from .tensors import address_of, converted, description, is_numpy, library_dtype, readable

if TYPE_CHECKING:
    import numpy

    from .mask import Mask
    from .score import Score


def attention(query: numpy.ndarray, key: numpy.ndarray, value: numpy.ndarray, mask: Mask | None, score: Score | None,
              scale: float | None, layout: str, sink: Any, tile: Sequence[int] = ()) -> tuple[numpy.ndarray, numpy.ndarray]:
    """(out, lse): see `flashspan.attention`."""
    import numpy as np

    calls.check_scale(scale)
    bshd = layout == "bshd"
    for name, array in (("key", key), ("value", value)):
        if not is_numpy(array):
            raise BadArgumentError(name, type(array).__name__, "a NumPy array, as query is")
    query, key, value = (_with_contiguous_rows(array, name)
                         for array, name in ((query, "query"), (key, "key"), (value, "value")))
    tensors = [description(array, name, bshd) for array, name in ((query, "query"), (key, "key"), (value, "value"))]
    sizes = calls.sizes_of(*tensors)
    out = np.empty((*query.shape[:-1], value.shape[-1]), query.dtype)
    lse = np.empty((sizes[0], sizes[1], sizes[3]), np.float32)
    if sink is not None:
        sink = np.asarray(sink, np.float32)
    kept = [[] if program is None else [converted(tensor, "mask or score tensor") for tensor in program.tensors]
            for program in (mask, score)]
    described = [[description(tensor, "mask or score tensor") for tensor in part] for part in kept]
    mask_text, score_text = ("" if program is None else program.description for program in (mask, score))
    programs = calls.programs(mask_text, described[0], score_text, described[1], sizes)
    call = calls.forward(-1, *programs, scale, tile, *tensors, None if sink is None else description(sink, "sink"),
                         description(out, "out", bshd), description(lse, "lse"))
    workspace = np.empty(call.workspace_bytes, np.uint8)
    addresses = tuple(0 if array is None else address_of(array) for array in (query, key, value, sink, out, lse))
    call.run(addresses, address_of(workspace), 0)
    return out, lse


def _with_contiguous_rows(array: numpy.ndarray, name: str) -> numpy.ndarray:
    import numpy as np

    library_dtype(array, name)
    contiguous = array.ndim == 0 or array.strides[-1] == array.itemsize or array.shape[-1] == 1
    return readable(array) if contiguous else np.ascontiguousarray(array)
