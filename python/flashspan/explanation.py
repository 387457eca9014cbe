"""How a mask becomes kernels, in words and numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from . import _core

if TYPE_CHECKING:
    from .mask import Mask
    from .score import Score

_DTYPES = {"float32": "f32", "float16": "f16", "bfloat16": "bf16"}


@dataclass(frozen=True)
class Tiles:
    """The tiles of the score matrix of one batch entry and head; `kinds` row by row: 0 empty, 1 full, 2 partial."""

    block_m: int
    block_n: int
    rows: int
    columns: int
    kinds: bytes
    empty: int
    full: int
    partial: int
    visible_pairs: int
    undecided_by_analysis: int


@dataclass(frozen=True)
class DirectionPlan:
    """What the forward or the backward does with the mask, and why."""

    direction: str
    lowering: str
    lowering_reason: str
    kernel_family: str
    kernel_family_reason: str
    spec: str
    block_m: int
    block_n: int
    tile: str
    tile_reason: str
    flops: float


@dataclass(frozen=True)
class Explanation:
    """The path from a mask to its kernels. Prints as text."""

    program: str
    score: str
    score_derivative: str
    depends_on: str
    tiles: Tiles
    density: float
    directions: tuple[DirectionPlan, ...]

    def __str__(self) -> str:
        lines = [f"mask       {self.program}", f"depends on {self.depends_on or 'nothing'}",
                 f"density    {self.density:.4f}",
                 f"tiles      {self.tiles.empty} empty, {self.tiles.full} full, {self.tiles.partial} partial, of "
                 f"{self.tiles.block_m} x {self.tiles.block_n}"]
        if self.score:
            lines += [f"score      {self.score}", f"derivative {self.score_derivative}"]
        for plan in self.directions:
            lines.append(f"{plan.direction:10} {plan.lowering}: {plan.lowering_reason}")
            if plan.kernel_family:
                lines.append(f"           {plan.kernel_family} kernels: {plan.kernel_family_reason}")
            lines.append(f"           tile {plan.tile}: {plan.tile_reason}")
        return "\n".join(lines)


def explain(mask: Mask, q_len: int, kv_len: int | None = None, *, batch: int = 1, heads: int = 1,
            kv_heads: int | None = None, head_dim: int = 128, head_dim_v: int | None = None, dtype: Any = "bfloat16",
            arch: str | None = "sm_90a", score: Score | None = None) -> Explanation:
    """What attention under `mask` would do in a call of these sizes. Nothing is compiled or launched.

    Args:
        mask: the mask.
        q_len, kv_len: lengths; kv_len is q_len if not given.
        batch: entries of the batch.
        heads, kv_heads: heads of queries, and of keys and values.
        head_dim, head_dim_v: of queries and keys, and of values.
        dtype: ``"float32"``, ``"float16"`` or ``"bfloat16"``, or torch's of that name.
        arch: a CUDA architecture; None is the CPU.
        score: how scores are modified.

    The mask's tensors are read on the host: from a CUDA device they are copied.
    """
    sizes = call_sizes(q_len, kv_len, batch, heads, kv_heads, head_dim, head_dim_v)
    host_mask, host_score = mask.on_host(), None if score is None else score.on_host()
    name = str(dtype).removeprefix("torch.")
    fields = _core.explain(host_mask.bound(sizes), None if host_score is None else host_score.bound(sizes), sizes,
                           _DTYPES.get(name, name), arch)
    fields["tiles"] = Tiles(**fields["tiles"])
    fields["directions"] = tuple(DirectionPlan(**plan) for plan in fields["directions"])
    return Explanation(**fields)


def tile_map(mask: Mask, q_len: int, kv_len: int | None = None, *, block_m: int = 128, block_n: int = 128,
             batch_index: int = 0, head_index: int = 0, batch: int = 1, heads: int = 1,
             kv_heads: int | None = None) -> Tiles:
    """The exact kinds of the tiles of `block_m` queries by `block_n` keys, of one batch entry and head.

    Args:
        mask: the mask.
        q_len, kv_len, batch, heads, kv_heads: sizes of the call, as for `explain`.
        batch_index, head_index: of which entry and head of queries.
    """
    sizes = call_sizes(q_len, kv_len, batch, heads, kv_heads, 64, None)
    host_mask = mask.on_host()
    return Tiles(**_core.tile_map(host_mask.bound(sizes), sizes, batch_index, head_index, block_m, block_n))


def call_sizes(q_len: int, kv_len: int | None, batch: int, heads: int, kv_heads: int | None, head_dim: int,
               head_dim_v: int | None) -> tuple:
    """In the extension's order."""
    return (batch, heads, heads if kv_heads is None else kv_heads, q_len, q_len if kv_len is None else kv_len, head_dim,
            head_dim if head_dim_v is None else head_dim_v)
