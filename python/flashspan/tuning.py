"""Tiles by measurement: flashspan.tune, with Triton's words for what to try."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from . import calls
from .config import Config, as_config, tile_of
from .errors import BadArgumentError
from .mask import as_mask
from .score import as_score
from .tensors import is_torch

KEYS = ("batch", "query_heads", "kv_heads", "q_len", "kv_len", "head_dim", "head_dim_v", "dtype", "mask", "score")


@dataclass(frozen=True)
class Candidate:
    """One tile and what became of it."""

    config: Config
    outcome: str  # "measured", "hopeless", "wrong", "failed", "out_of_time"
    note: str  # one line, if it is not measured
    milliseconds: float  # median of a call; 0: did not run
    details: dict = field(repr=False)  # what it takes: shared_bytes, registers, occupancy, ...


@dataclass(frozen=True)
class TuneResult:
    """The kernel of one direction of one call."""

    direction: str
    best: Config
    milliseconds: float
    default: Config
    default_milliseconds: float
    candidates: list[Candidate]
    record: dict = field(repr=False)  # the line of the tuning file

    @property
    def speedup(self) -> float:
        return self.default_milliseconds / self.milliseconds


def tune(attentions: Iterable[Mapping[str, Any]], configs: Sequence[Any] | None = None, key: Sequence[str] | None = None,
         prune_configs_by: Mapping[str, Any] | None = None, backward: bool = True, time_limit: float = 60.0,
         remember: bool = True,
         progress: Callable[[str, int, int, Candidate], None] | None = None) -> list[TuneResult]:
    """Times the tiles that the kernels of calls of `flashspan.attention` may have, on the calls' own tensors and masks.

    The fastest whose results agree with those of the default tile is remembered in the tuning file (docs/tuning.md), and taken
    by later calls of its kernel, mask and size, in this process and in others. Nothing else tunes.

    Args:
        attentions: the keyword arguments of each call: torch tensors ``query``, ``key`` and ``value``, mask, score, ...
        configs: what to try beside the default: `Config`, ``triton.Config`` objects, or dictionaries of BLOCK_M and BLOCK_N.
            None: everything that the kernel can be made of and that fits the device.
        key: as of ``triton.autotune``: of calls that agree in these, the first alone is tuned. Names among batch, query_heads,
            kv_heads, q_len, kv_len, head_dim, head_dim_v, dtype, mask, score. None: all calls are.
        prune_configs_by: as of ``triton.autotune``: ``early_config_prune(configs, named_args)`` gives the configs to try;
            ``perf_model(**named_args, **config.all_kwargs())`` an estimate by which the best ``top_k`` (a number, or a part of
            them up to 1.0) are kept. Without ``perf_model`` the library's own order is gone by. ``named_args`` are the call's
            arguments, and ``direction``, "forward" or "backward".
        backward: also the backward's kernel.
        time_limit: seconds for each kernel; the default tile is measured whatever it takes.
        remember: False: neither written to the tuning file nor taken by later calls.
        progress: called as ``progress(direction, done, all, candidate)``.

    Raises:
        What the calls would raise.
    """
    unknown = sorted(set(key or ()) - set(KEYS))
    if unknown:
        raise BadArgumentError("key", ", ".join(unknown), "names among " + ", ".join(KEYS))
    tried = None if configs is None else [as_config(config) for config in configs]
    results, seen = [], set()
    try:
        for arguments in attentions:
            identity = tuple(_key_value(name, arguments) for name in key) if key is not None else object()
            if identity in seen:
                continue
            seen.add(identity)
            results += _tune_one(arguments, tried, prune_configs_by or {}, backward, time_limit, remember, progress)
    finally:
        if remember:
            calls.forget_all()  # other tiles have workspaces of other sizes, those of a tuning that was broken off, too
    return results


def _tune_one(arguments: Mapping[str, Any], configs: list[Config] | None, prune_by: Mapping[str, Any], backward: bool,
              time_limit: float, remember: bool, progress: Any) -> list[TuneResult]:
    results = []
    for direction, call, placed in _described(backward=backward, **arguments):
        tiles = _pruned(configs, call, {**arguments, "direction": direction}, prune_by)

        def report(done: int, everything: int, candidate: str, direction: str = direction) -> None:
            progress(direction, done, everything, _candidate(json.loads(candidate)))

        found = json.loads(call.tune(*placed, [config.tile for config in tiles], 0, time_limit, remember,
                                     None if progress is None else report))
        results.append(_result(direction, found))
    return results


def _pruned(configs: list[Config] | None, call: Any, named_args: dict, prune_by: Mapping[str, Any]) -> list[Config]:
    """What is left to try, as ``triton.autotune`` goes about it."""
    known = {"early_config_prune", "perf_model", "top_k"}
    if set(prune_by) - known:
        raise BadArgumentError("prune_configs_by", ", ".join(sorted(set(prune_by) - known)), ", ".join(sorted(known)))
    left = configs if configs is not None else [Config.of_tile(tile["tile"]) for tile in json.loads(call.tiles())]
    everything = len(left)
    early, model, top_k = (prune_by.get(name) for name in ("early_config_prune", "perf_model", "top_k"))
    if early is not None:
        left = [as_config(config) for config in early(left, named_args)]
    if model is not None:
        left = sorted(left, key=lambda config: model(**named_args, **config.all_kwargs()))
    if top_k is not None:
        left = left[:int(everything * top_k) if isinstance(top_k, float) and top_k <= 1 else int(top_k)]
    if not left:
        raise BadArgumentError("prune_configs_by", "no config left", "one config at least")
    return left


def _result(direction: str, found: dict) -> TuneResult:
    best = found["best"]
    return TuneResult(direction, Config.of_tile(best["tile"]), best["milliseconds"], Config.of_tile(best["default_tile"]),
                      best["default_milliseconds"], [_candidate(candidate) for candidate in found["candidates"]], best)


def _candidate(found: dict) -> Candidate:
    return Candidate(Config.of_tile(found["tile"]), found["outcome"], found["note"], found["milliseconds"], found)


def _key_value(name: str, arguments: Mapping[str, Any]) -> Any:
    query, key, value = arguments["query"], arguments["key"], arguments["value"]
    heads, length = (1, 2) if arguments.get("layout", "bshd") == "bhsd" else (2, 1)
    if name in ("mask", "score"):
        program = (as_mask if name == "mask" else as_score)(arguments.get(name))
        return "" if program is None else program.description
    return {"batch": query.shape[0], "query_heads": query.shape[heads], "kv_heads": key.shape[heads],
            "q_len": query.shape[length], "kv_len": key.shape[length], "head_dim": query.shape[3],
            "head_dim_v": value.shape[3], "dtype": str(query.dtype)}[name]


def _described(query: Any, key: Any, value: Any, mask: Any = None, score: Any = None, scale: float | None = None,
               layout: str = "bshd", deterministic: bool = False, sink: Any = None, backward: bool = True,
               return_lse: bool = False, config: Any = None, backward_config: Any = None) -> Iterator[tuple[str, Any, tuple]]:
    del return_lse  # makes no difference to kernels
    calls.check_layout(layout)
    if not is_torch(query):
        raise BadArgumentError("query", type(query).__name__, "a torch tensor")
    from . import torch_ops

    return torch_ops.placed(query, key, value, as_mask(mask), as_score(score), scale, layout, deterministic, sink, backward,
                            tile_of(config), tile_of(backward_config))
