"""Flashspan: attention under any mask, compiled at run time.

    out = flashspan.attention(q, k, v, mask="(q >= k) & (doc[q] == doc[k])" ...)

See `attention`, `Mask`, `Score`, `masks` (ready-made masks) and docs/python.
"""

from . import explanation, masks
from .attention import attention
from .config import Config, read_triton_autotune
from .doctor import doctor
from .errors import (BadArgumentError, BadExpressionError, CompileError, DeviceError, FlashspanError, InputOutputError,
                     KernelSpillsError, MissingComponentError, NoDeviceError, NotPreparedError, TimedOutError, TraceError,
                     UnsupportedError, WorkspaceTooSmallError)
from .mask import Mask
from .preparation import freeze, prepare
from .score import Score
from .tensors import torch_module
from .trace import lookup
from .traced import maximum, minimum, where
from .tuning import TuneResult, tune
from .watching import CompileEvent, CompileHook, metrics, on_compile

if torch_module() is not None:
    from . import torch_ops  # so that torch.ops.flashspan is there; without torch nothing needs it

__version__ = "0.1.0"

__all__ = [
    "BadArgumentError", "BadExpressionError", "CompileError", "CompileEvent", "CompileHook", "Config", "DeviceError",
    "FlashspanError", "InputOutputError", "KernelSpillsError", "Mask", "MissingComponentError", "NoDeviceError",
    "NotPreparedError", "Score", "TimedOutError", "TraceError", "TuneResult", "UnsupportedError", "WorkspaceTooSmallError",
    "attention", "doctor", "explanation", "freeze", "lookup", "masks", "maximum", "metrics", "minimum", "on_compile",
    "prepare", "read_triton_autotune", "tune", "where",
]
