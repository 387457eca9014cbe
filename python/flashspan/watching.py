"""What the library has done and is doing, for whoever watches it: metrics, and functions called around every compile."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable

from . import _core
from .errors import BadArgumentError, FlashspanError
from .log import logger


@dataclasses.dataclass(frozen=True)
class CompileEvent:
    """One compile in this process. A kernel that comes from a cache or a compile service is none.

    Attributes:
        spec: the kernel in one line.
        key: 32 hexadecimal digits, under which caches and ``FLASHSPAN_DUMP_DIR`` keep it.
        milliseconds: that it took; None before it.
        error: why it failed; None if it did not, and before it. A kernel that does not fit its registers is a
            `KernelSpillsError` here even if another then serves in its place.
    """

    spec: str
    key: str
    milliseconds: float | None = None
    error: FlashspanError | None = None


Watcher = Callable[[CompileEvent], None]


class CompileHook:
    """What `on_compile` gives: the functions are called until `remove`, or to the end of a ``with`` block."""

    def __init__(self, before: Watcher | None, after: Watcher | None) -> None:
        self._before, self._after = before, after

    def remove(self) -> None:
        """The functions are not called any more, except for a compile that is being told of already."""
        global _hooks
        with _lock:
            _hooks = tuple(hook for hook in _hooks if hook is not self)

    def __enter__(self) -> CompileHook:
        return self

    def __exit__(self, *exception: object) -> None:
        self.remove()


_lock = threading.Lock()
_hooks: tuple[CompileHook, ...] = ()  # replaced as a whole, so that it can be read without the lock


def on_compile(before: Callable[[CompileEvent], None] | None = None,
               after: Callable[[CompileEvent], None] | None = None) -> CompileHook:
    """Has functions called around every compile of this process's attention, for example to count them, or to see that
    none happens::

        with flashspan.on_compile(before=lambda event: print("compiling", event.spec)):
            flashspan.attention(query, key, value, mask="causal")

    Args:
        before: called with a `CompileEvent` before each compile.
        after: called after it, with its milliseconds and its error, if it failed.

    They are called by the thread that compiles, so from several at a time, and must not call Flashspan. An exception of
    theirs is logged and stops nothing.

    Returns:
        A `CompileHook`, to `remove` them.

    Raises:
        BadArgumentError: for what cannot be called.
    """
    global _hooks
    for name, function in (("before", before), ("after", after)):
        if function is not None and not callable(function):
            raise BadArgumentError(name, type(function).__name__, "a function of a CompileEvent, or None")
    hook = CompileHook(before, after)
    with _lock:
        _hooks += (hook,)
    return hook


def metrics() -> str:
    """What this process has compiled, found in caches and launched since its start: counters and histograms in the text
    format of Prometheus (version 0.0.4), to be served as ``text/plain; version=0.0.4``. docs/serving.md lists them."""
    return _core.metrics()


def tell_before(spec: str, key: str) -> None:
    """Called by the extension, from any thread."""
    event = CompileEvent(spec, key)
    for hook in _hooks:
        _call(hook._before, event)


def tell_after(spec: str, key: str, milliseconds: float, error: FlashspanError | None) -> None:
    """Called by the extension, from any thread."""
    event = CompileEvent(spec, key, milliseconds, error)
    for hook in _hooks:
        _call(hook._after, event)


def _call(watcher: Watcher | None, event: CompileEvent) -> None:
    if watcher is None:
        return
    try:
        watcher(event)
    except Exception:
        logger.exception("a function given to on_compile failed")
