"""What a few arguments decide is made once."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, wraps
from typing import TypeVar

from .tensors import torch_module

Made = TypeVar("Made")


def remembered(make: Callable[..., Made]) -> Callable[..., Made]:
    """`make`, whose results are kept for calls with the same arguments. Inside torch's compiler it is `make` itself: the
    compiler warns of caches, which it does not see, and makes a constant of the result anyway."""
    kept = lru_cache(maxsize=64)(make)

    @wraps(make)
    def call(*arguments: object) -> Made:
        torch = torch_module()
        return make(*arguments) if torch is not None and torch.compiler.is_compiling() else kept(*arguments)

    return call
