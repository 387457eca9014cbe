"""Masks drawn: PNG without any other package, or a figure of matplotlib."""

from __future__ import annotations

import pathlib
import struct
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .explanation import Tiles, tile_map

if TYPE_CHECKING:
    from .mask import Mask

# Grey of an empty, a full and a partial tile.
_SHADES = bytes((255, 60, 150))


@dataclass(frozen=True)
class Picture:
    """A mask's tiles as an image: hidden white, visible dark, in part visible between. Shows itself in a notebook."""

    tiles: Tiles
    scale: int  # pixels for each tile, in both directions

    def png(self) -> bytes:
        rows = [self.tiles.kinds[row * self.tiles.columns:(row + 1) * self.tiles.columns]
                for row in range(self.tiles.rows)]
        lines = []
        for row in rows:
            shades = row.translate(_SHADES + bytes(256 - len(_SHADES)))
            lines += [b"\0" + bytes(shade for shade in shades for _ in range(self.scale))] * self.scale
        header = struct.pack(">IIBBBBB", self.tiles.columns * self.scale, self.tiles.rows * self.scale, 8, 0, 0, 0, 0)
        return b"\x89PNG\r\n\x1a\n" + b"".join(
            _chunk(name, data) for name, data in
            ((b"IHDR", header), (b"IDAT", zlib.compress(b"".join(lines))), (b"IEND", b"")))

    def save(self, path: str | pathlib.Path) -> None:
        pathlib.Path(path).write_bytes(self.png())

    def figure(self) -> Any:
        """A figure of matplotlib, with axes in tokens."""
        import matplotlib.figure

        figure = matplotlib.figure.Figure()
        axes = figure.add_subplot()
        shades = [[_SHADES[kind] for kind in self.tiles.kinds[row * self.tiles.columns:(row + 1) * self.tiles.columns]]
                  for row in range(self.tiles.rows)]
        height, width = self.tiles.rows * self.tiles.block_m, self.tiles.columns * self.tiles.block_n
        axes.imshow(shades, cmap="gray", vmin=0, vmax=255, interpolation="nearest", extent=(0, width, height, 0))
        axes.set_xlabel("key")
        axes.set_ylabel("query")
        return figure

    def _repr_png_(self) -> bytes:
        return self.png()


def draw(mask: Mask, q_len: int, kv_len: int | None = None, *, pixels: int = 512, **sizes: Any) -> Picture:
    """`mask` in a picture of about `pixels` by `pixels` at most.

    Args:
        sizes: as `flashspan.explanation.tile_map` takes: batch, heads, kv_heads, and batch_index and head_index for the
            one that is drawn.
    """
    longest = max(q_len, q_len if kv_len is None else kv_len, 1)
    block = -(-longest // pixels)
    tiles = tile_map(mask, q_len, kv_len, block_m=block, block_n=block, **sizes)
    return Picture(tiles, max(1, pixels // max(tiles.rows, tiles.columns, 1)))


def _chunk(name: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
