"""Bits of traced integers. The mask language has no operations on bits; where it is known which bits of which integers a
value is made of (Morton codes, packed flags), they are divisions, remainders and sums."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

# Which bit of the value is which bit of which traced integer.
Fields = dict[int, tuple[Any, int]]

_BITS = 62  # of the integers that indices and lookups give


def masked(value: Any, mask: Any) -> Fields | None:
    """``value & mask`` for a mask that is a number."""
    if not mask.text.isdigit():
        value, mask = mask, value
    if not mask.text.isdigit():
        return None
    chosen = [bit for bit in range(_BITS) if int(mask.text) >> bit & 1]
    if value.fields is None:
        return {bit: (value, bit) for bit in chosen}
    return {bit: value.fields[bit] for bit in chosen if bit in value.fields}


def joined(left: Any, right: Any) -> Fields | None:
    """``left | right`` for values whose bits are known and not the same."""
    if left.fields is None or right.fields is None or left.fields.keys() & right.fields.keys():
        return None
    return {**left.fields, **right.fields}


def shifted(fields: Fields, by: int) -> Fields:
    """Towards higher bits; towards lower ones for a negative number. Bits below the lowest are lost."""
    return {bit + by: source for bit, source in fields.items() if bit + by >= 0}


def runs(fields: Fields) -> Iterator[tuple[Any, int, int, int]]:
    """Runs of bits that stay together: (integer, lowest bit there, number of bits, lowest bit here)."""
    start: tuple[Any, int, int] | None = None
    width = 0
    for bit in sorted(fields):
        base, source = fields[bit]
        if start is not None and base is start[0] and (source, bit) == (start[1] + width, start[2] + width):
            width += 1
            continue
        if start is not None:
            yield start[0], start[1], width, start[2]
        start, width = (base, source, bit), 1
    if start is not None:
        yield start[0], start[1], width, start[2]
