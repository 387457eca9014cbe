"""One Attention of the library for each device, opened on first use."""

from __future__ import annotations

import atexit
import threading
from typing import Any

from . import _core, log, watching

# Compiles may go on in the background, and tell of themselves, until the process ends.
atexit.register(_core.close_receivers)

_lock = threading.Lock()
_opened: dict[int, Any] = {}
_on_miss = "compile"


def attention_on(cuda_device: int) -> Any:
    """The extension's Attention on CUDA device `cuda_device`, or for -1 on the CPU.

    Raises NoDeviceError, or MissingComponentError with the command that installs what is missing.
    """
    found = _opened.get(cuda_device)
    if found is not None:
        return found
    with _lock:
        if cuda_device not in _opened:
            log.follow_environment()
            opened = _core.Attention.open(cuda_device, log.receive, watching.tell_before, watching.tell_after, None)
            opened.freeze(_on_miss)
            _opened[cuda_device] = opened
        return _opened[cuda_device]


def may_compile() -> bool:
    """False after a `freeze_all` that forbids calls to compile, or wants it noticed."""
    return _on_miss == "compile"


def freeze_all(on_miss: str) -> None:
    """The policy of every Attention, opened already or later."""
    global _on_miss
    with _lock:
        for opened in _opened.values():
            opened.freeze(on_miss)
        _on_miss = on_miss
