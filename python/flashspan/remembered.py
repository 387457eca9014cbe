"""What a few arguments decide is made once."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, wraps
from typing import TypeVar

from .tensors import is_torch, torch_module

Made = TypeVar("Made")


def remembered(make: Callable[..., Made]) -> Callable[..., Made]:
    """`make`, whose results are kept for calls with the same arguments. It is `make` itself for tensors, whose values may change,
    and inside torch's compiler, which warns of caches, as it does not see them, and makes a constant of the result anyway."""
    kept = lru_cache(maxsize=64)(make)

    @wraps(make)
    def call(*arguments: object) -> Made:
        torch = torch_module()
        compiling = torch is not None and torch.compiler.is_compiling()
        return make(*arguments) if compiling or any(map(is_torch, arguments)) else kept(*arguments)

    return call
