"""Config: the sizes of a kernel in Triton's words, and Triton's own configs and result files read as such."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any

from .errors import BadArgumentError, UnsupportedError

# What kernels write for the rows of queries and of keys of a tile.
_NAMES = {"BLOCK_M": ("BLOCK_M", "BLOCK_SIZE_M"), "BLOCK_N": ("BLOCK_N", "BLOCK_SIZE_N")}


class Config:
    """The sizes of a kernel: ``Config({"BLOCK_M": 128, "BLOCK_N": 64}, num_warps=8, num_stages=2)``.

    Takes what ``triton.Config`` takes, and ``triton.Config`` objects themselves; triton needs not be installed.

    Args:
        kwargs: ``BLOCK_M`` query rows by ``BLOCK_N`` keys are one tile (or ``BLOCK_SIZE_M``, ``BLOCK_SIZE_N``); or an object
            with the attributes of ``triton.Config``.
        num_warps: warps that compute. Those that only copy, in the `hopper` kernels, come on top.
        num_stages: tiles of keys and values in flight.
        num_ctas: 1: no kernel of ours is made for clusters.
        maxnreg: None: the block's size decides how many registers a thread has.

    Raises:
        BadArgumentError: for other names in ``kwargs``, and for what is no positive whole number.
        UnsupportedError: for other values of ``num_ctas`` and ``maxnreg``.
    """

    def __init__(self, kwargs: Any, num_warps: int = 4, num_stages: int = 3, num_ctas: int = 1,
                 maxnreg: int | None = None) -> None:
        if not isinstance(kwargs, Mapping):
            given = kwargs
            if not all(hasattr(given, name) for name in ("kwargs", "num_warps", "num_stages")):
                raise BadArgumentError("config", type(given).__name__,
                                       "a dictionary of BLOCK_M and BLOCK_N, or a triton.Config")
            kwargs, num_warps, num_stages = given.kwargs, given.num_warps, given.num_stages
            num_ctas, maxnreg = getattr(given, "num_ctas", 1), getattr(given, "maxnreg", None)
        sizes = dict(kwargs)
        self.BLOCK_M = _taken(sizes, "BLOCK_M")
        self.BLOCK_N = _taken(sizes, "BLOCK_N")
        if sizes:
            raise BadArgumentError("config", ", ".join(map(str, sizes)), "BLOCK_M and BLOCK_N alone")
        self.num_warps = _positive("num_warps", num_warps)
        self.num_stages = _positive("num_stages", num_stages)
        if num_ctas != 1:
            raise UnsupportedError("num_ctas", str(num_ctas), "1: kernels are not made for clusters")
        if maxnreg is not None:
            raise UnsupportedError("maxnreg", str(maxnreg), "None: the block's size decides about registers")

    num_ctas = 1
    maxnreg = None

    @property
    def kwargs(self) -> dict[str, int]:
        return {"BLOCK_M": self.BLOCK_M, "BLOCK_N": self.BLOCK_N}

    def all_kwargs(self) -> dict[str, int]:
        """As ``triton.Config.all_kwargs``: what a perf_model is called with."""
        return {**self.kwargs, "num_warps": self.num_warps, "num_ctas": self.num_ctas, "num_stages": self.num_stages}

    def to_triton(self) -> Any:
        """The same as a ``triton.Config``."""
        import triton

        return triton.Config(self.kwargs, num_warps=self.num_warps, num_stages=self.num_stages, num_ctas=self.num_ctas,
                             maxnreg=self.maxnreg)

    @property
    def tile(self) -> tuple[int, int, int, int]:
        """As the library takes it."""
        return self.BLOCK_M, self.BLOCK_N, self.num_warps, self.num_stages

    @classmethod
    def of_tile(cls, tile: Mapping[str, int]) -> Config:
        """From the library's JSON."""
        return cls({"BLOCK_M": tile["block_m"], "BLOCK_N": tile["block_n"]}, tile["num_warps"], tile["num_stages"])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Config) and self.tile == other.tile

    def __hash__(self) -> int:
        return hash(self.tile)

    def __repr__(self) -> str:
        return f"Config({self.kwargs}, num_warps={self.num_warps}, num_stages={self.num_stages})"


def as_config(config: Any) -> Config:
    return config if isinstance(config, Config) else Config(config)


def tile_of(config: Any) -> tuple[int, ...]:
    """`Config.tile` of a config or of what makes one; nothing for None."""
    return () if config is None else as_config(config).tile


def read_triton_autotune(path: str | os.PathLike) -> list[tuple[Config, float]]:
    """The configs of a ``*.autotune.json`` that Triton's autotuner wrote (``TRITON_CACHE_AUTOTUNING=1``, or
    ``cache_results=True``), with their median milliseconds, fastest first. Those that failed (inf) are left out, and so are
    those that are none of ours: other block sizes than BLOCK_M and BLOCK_N, clusters, register limits.

    Args:
        path: of the file.

    Raises:
        BadArgumentError: for a file of another form.
    """
    takes = "a *.autotune.json of Triton: {\"key\": .., \"configs_timings\": [[config, timings], ..]}"
    try:
        with open(path, encoding="utf-8") as file:
            pairs = json.load(file)["configs_timings"]
        read = [(config["kwargs"], {name: config[name] for name in _OPTIONS if config.get(name) is not None},
                 float(timings[0] if isinstance(timings, list) else timings)) for config, timings in pairs]
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise BadArgumentError("path", f"{os.fspath(path)}: {type(error).__name__}: {error}", takes) from None
    timed = []
    for kwargs, options, milliseconds in read:
        if milliseconds == float("inf"):
            continue
        try:
            timed.append((Config(kwargs, **options), milliseconds))
        except (BadArgumentError, UnsupportedError):
            continue
    return sorted(timed, key=lambda pair: pair[1])


_OPTIONS = ("num_warps", "num_stages", "num_ctas", "maxnreg")


def _taken(sizes: dict, name: str) -> int:
    for spelling in _NAMES[name]:
        if spelling in sizes:
            return _positive(spelling, sizes.pop(spelling))
    raise BadArgumentError("config", "no " + name, "a dictionary of BLOCK_M and BLOCK_N")


def _positive(name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise BadArgumentError(name, repr(value), "a positive whole number")
    return value
