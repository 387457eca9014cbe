"""The masks and score modifications of attention-gym that are pure functions of their indices, and some of FlashAttention-4's
tests, written anew in its style.

Each entry of MASKS is (name, q_len, kv_len, heads, callable); of SCORES (name, length, heads, callable). The callables run
on index tensors as well as traced."""

import math

import torch


def _ints(*values):
    return torch.tensor(values, dtype=torch.int32)


def causal(b, h, q, k):
    return q >= k


def noop(b, h, q, k):
    return b.new_ones(size=(), dtype=torch.bool)


def sliding_window(width):
    def mask(b, h, q, k):
        return (q >= k) & (q - k <= width)
    return mask


def dilated_sliding_window(width, dilation):
    def mask(b, h, q, k):
        distance = torch.abs(q - k)
        return (distance <= width) & ((distance % dilation) == 0)
    return mask


def global_sliding_window(width, is_global):
    def mask(b, h, q, k):
        return (torch.abs(q - k) <= width) | is_global[q] | is_global[k]
    return mask


def prefix_lm(length):
    def mask(b, h, q, k):
        return (k < length) | causal(b, h, q, k)
    return mask


def _documents_of(offsets):
    return torch.repeat_interleave(torch.arange(len(offsets) - 1), offsets.diff())


def documents(inner, offsets):
    doc = _documents_of(offsets)

    def mask(b, h, q, k):
        same = doc[q] == doc[k]
        return same & inner(b, h, q - offsets[doc[q]], k - offsets[doc[k]])
    return mask


def packed_causal_documents(offsets):
    doc = _documents_of(offsets)

    def mask(b, h, q, k):
        return (k >= offsets[doc[q]]) & (k <= q)
    return mask


def shared_prefix(offsets, prefix_doc):
    doc = _documents_of(offsets)

    def mask(b, h, q, k):
        own = doc[q]
        prefix = prefix_doc[own]
        inside = (k >= offsets[own]) & (k <= q)
        return inside | ((own != prefix) & (k >= offsets[prefix]) & (k < offsets[prefix + 1]))
    return mask


def block_diffusion(length, block):
    def mask(b, h, q, k):
        q_noised, k_noised = q < length, k < length
        q_block = torch.where(q_noised, q // block, (q - length) // block)
        k_block = torch.where(k_noised, k // block, (k - length) // block)
        diagonal = (q_block == k_block) & (q_noised == k_noised)
        offset = (q_block > k_block) & q_noised & ~k_noised
        clean = (q_block >= k_block) & ~q_noised & ~k_noised
        return diagonal | offset | clean
    return mask


def tree_causal(prefix, ancestors):
    nodes = ancestors.shape[0]

    def mask(b, h, q, k):
        node = torch.clamp(k - prefix, 0, nodes - 1)
        in_tree = (k >= prefix) & (k < prefix + nodes)
        return (k < prefix) | (in_tree & ancestors[q, node])
    return mask


def tree_training(prefix, block):
    def mask(b, h, q, k):
        position = k - prefix
        same = (k >= prefix) & (q // block == position // block) & (position % block <= q % block)
        return (k < prefix) | same
    return mask


def _neighbours(q_at, k_at, kernel, limits):
    visible = None
    for q_here, k_here, width, limit in zip(q_at, k_at, kernel, limits):
        centre = q_here.clamp(width // 2, (limit - 1) - width // 2)
        near = (centre - k_here).abs() <= width // 2
        visible = near if visible is None else visible & near
    return visible


def natten(width, height, kernel):
    def mask(b, h, q, k):
        return _neighbours((q // width, q % width), (k // width, k % width), kernel, (height, width))
    return mask


def tiled_natten(width, height, kernel, tile_width, tile_height):
    def at(index):
        tile, inside = index // (tile_height * tile_width), index % (tile_height * tile_width)
        tile_y, tile_x = tile // (width // tile_width), tile % (width // tile_width)
        return tile_x * tile_width + inside % tile_width, tile_y * tile_height + inside // tile_width

    def mask(b, h, q, k):
        return _neighbours(at(q), at(k), kernel, (width, height))
    return mask


def _every_other_bit(code):
    code = code & 0x55555555
    for shift, kept in ((1, 0x33333333), (2, 0x0F0F0F0F), (4, 0x00FF00FF), (8, 0x0000FFFF)):
        code = (code | (code >> shift)) & kept
    return code


def morton_natten(width, height, kernel):
    def at(code):
        return _every_other_bit(code), _every_other_bit(code >> 1)

    def mask(b, h, q, k):
        return _neighbours(at(q), at(k), kernel, (width, height))
    return mask


def sliding_tiles(canvas, kernel, tile, text):
    tiles = [size // part for size, part in zip(canvas, tile)]
    vision, tile_size = math.prod(canvas), math.prod(tile)

    def at(index):
        number, places = index // tile_size, []
        for count in reversed(tiles):
            places.append(number % count)
            number = number // count
        return places[::-1]

    def mask(b, h, q, k):
        near = (q < vision) & (k < vision)
        for q_tile, k_tile, width, count in zip(at(q), at(k), kernel, tiles):
            left, right = width // 2, width // 2 + (width % 2 - 1)
            centre = q_tile.clamp(left, (count - 1) - right)
            near = near & (k_tile >= centre - left) & (k_tile <= centre + right)
        to_text = (q < vision) & (k >= vision) & (k < vision + text)
        from_text = (q >= vision) & (k < vision + text)
        return near | to_text | from_text
    return mask


def top_tiles(chosen, tile, sizes=None):
    def mask(b, h, q, k):
        k_tile = k // tile
        selected = (chosen[b, h, q // tile] == k_tile.unsqueeze(-1)).any(dim=-1)
        return selected if sizes is None else selected & (k % tile < sizes[k_tile])
    return mask


def tile_map(chosen, tile):
    def mask(b, h, q, k):
        return chosen[b, h, q // tile, k // tile]
    return mask


def tile_padding(sizes, tile):
    def mask(b, h, q, k):
        return k % tile < sizes[k // tile]
    return mask


def batched(inner, length):
    def mask(b, h, q, k):
        return (q // length == k // length) & inner(b, h, q % length, k % length)
    return mask


def vision_cross_attention(intervals, tokens):
    image = torch.repeat_interleave(torch.arange(intervals.shape[0]), repeats=tokens)

    def mask(b, h, q, k):
        interval = intervals[image[k]]
        return (q >= interval[0]) & (q < interval[1])
    return mask


def spatial_head(prompt, tokens, width):
    rounded = math.floor(width * tokens / 8) * 8

    def mask(b, h, q, k):
        return (k < prompt) | (q < prompt) | (torch.abs(q - k) < rounded)
    return mask


def temporal_head(prompt, frames, tokens, width):
    near = width * tokens / frames

    def mask(b, h, q, k):
        def token(index):
            return (index - prompt) % tokens
        return (k < prompt) | (q < prompt) | (torch.abs(token(q) - token(k)) < near)
    return mask


def checkerboard(b, h, q, k):
    return (q + k) % 2 == 0


def stand_alone(width, reach):
    """Pixels of an image, each of which sees those around it; at the border fewer."""
    def mask(b, h, q, k):
        return (torch.abs(q // width - k // width) <= reach) & (torch.abs(q % width - k % width) <= reach)
    return mask


def block_causal(block, offset):
    def mask(b, h, q, k):
        return k // block <= (q + offset) // block
    return mask


def mini_causal(tile):
    def mask(b, h, q, k):
        return k % tile <= q % tile
    return mask


def key_thresholds(first):
    def mask(b, h, q, k):
        return q >= first[k]
    return mask


def token_windows(left, right):
    def mask(b, h, q, k):
        return (k >= q - left[q]) & (k <= q + right[q])
    return mask


def bit_packed(words, power):
    """16 keys in a word."""
    def mask(b, h, q, k):
        return words[q, k // 16] // power[k % 16] % 2 == 1
    return mask


_generator = torch.Generator().manual_seed(5)
_offsets = _ints(0, 13, 40, 41, 64)
_chosen = torch.stack([torch.randperm(8, generator=_generator)[:3] for _ in range(2 * 8)]).reshape(1, 2, 8, 3)
_map = torch.rand(1, 2, 8, 8, generator=_generator) < 0.4
_sizes = _ints(8, 3, 8, 1, 5, 8, 8, 2)
_parents = (-1, 0, 1, 1, 3, 3, 0)
_ancestors = torch.eye(7, dtype=torch.bool)
for _node, _parent in enumerate(_parents[1:], start=1):
    _ancestors[_node] |= _ancestors[_parent]

MASKS = (
    ("causal", 64, 64, 1, causal),
    ("noop", 64, 64, 1, noop),
    ("sliding_window", 64, 64, 1, sliding_window(9)),
    ("dilated_sliding_window", 64, 64, 1, dilated_sliding_window(12, 3)),
    ("global_sliding_window", 64, 64, 1, global_sliding_window(5, torch.arange(64) % 17 == 3)),
    ("prefix_lm", 64, 64, 1, prefix_lm(20)),
    ("document_causal", 64, 64, 1, documents(causal, _offsets)),
    ("document_window", 64, 64, 1, documents(sliding_window(6), _offsets)),
    ("packed_causal_documents", 64, 64, 1, packed_causal_documents(_offsets)),
    ("shared_prefix", 64, 64, 1, shared_prefix(_offsets, _ints(0, 0, 2, 2))),
    ("block_diffusion", 64, 64, 1, block_diffusion(32, 8)),
    ("tree_causal", 7, 40, 1, tree_causal(33, _ancestors)),
    ("tree_training", 24, 64, 1, tree_training(40, 6)),
    ("natten", 64, 64, 1, natten(8, 8, (3, 5))),
    ("tiled_natten", 64, 64, 1, tiled_natten(8, 8, (5, 3), 4, 2)),
    ("morton_natten", 64, 64, 1, morton_natten(8, 8, (3, 3))),
    ("sliding_tiles_2d", 70, 70, 1, sliding_tiles((8, 8), (3, 2), (2, 2), 4)),
    ("sliding_tiles_3d", 70, 70, 1, sliding_tiles((4, 4, 4), (1, 2, 2), (2, 2, 2), 5)),
    ("top_tiles", 64, 64, 2, top_tiles(_chosen, 8)),
    ("top_tiles_padded", 64, 64, 2, top_tiles(_chosen, 8, _sizes)),
    ("tile_map", 64, 64, 2, tile_map(_map, 8)),
    ("tile_padding", 64, 64, 1, tile_padding(_sizes, 8)),
    ("batched", 64, 64, 1, batched(natten(4, 4, (3, 3)), 16)),
    ("vision_cross_attention", 12, 24, 1, vision_cross_attention(_ints(0, 7, 1, 7, 7, 12).reshape(3, 2), 8)),
    ("spatial_head", 64, 64, 1, spatial_head(4, 20, 1.5)),
    ("temporal_head", 64, 64, 1, temporal_head(4, 3, 20, 0.9)),
    ("checkerboard", 64, 64, 1, checkerboard),
    ("stand_alone", 64, 64, 1, stand_alone(8, 2)),
    ("nested_documents", 64, 64, 1, documents(noop, _offsets)),
    ("block_causal", 40, 64, 1, block_causal(12, 5)),
    ("mini_causal", 64, 64, 1, mini_causal(24)),
    ("key_thresholds", 64, 64, 1, key_thresholds(torch.randint(0, 70, (64,), generator=_generator))),
    ("token_windows", 64, 64, 1, token_windows(*torch.randint(0, 20, (2, 64), generator=_generator))),
    ("bit_packed", 64, 64, 1, bit_packed(torch.randint(0, 2**16, (64, 4), generator=_generator), 2 ** torch.arange(16))),
)


def alibi(heads):
    def score_mod(score, b, h, q, k):
        return score + (k - q) * torch.exp2(-((h + 1) * 8.0 / heads))
    return score_mod


def softcap(cap):
    def score_mod(score, b, h, q, k):
        return cap * torch.tanh(score / cap)
    return score_mod


def sandwich(table, offset, heads):
    def score_mod(score, b, h, q, k):
        return score + table[q - k + offset] * (heads / (8.0 * (h + 1)))
    return score_mod


def spatial_bias(bias, distances):
    def score_mod(score, b, h, q, k):
        return score + bias[h, distances[b, q, k]]
    return score_mod


def edge_bias(table, edges, lengths):
    tables = [table[:, place] for place in range(edges.shape[-1])]

    def score_mod(score, b, h, q, k):
        length = lengths[b, q, k]
        total = 0.0
        for place, here in enumerate(tables):
            total = total + torch.where(length > place, here[h, edges[b, q, k, place]], 0.0)
        return score + total / torch.clamp(length, min=1)
    return score_mod


def activation(keys):
    def score_mod(score, b, h, q, k):
        return torch.log(torch.sigmoid(score) + keys)
    return score_mod


def relative(slope):
    """`slope` is a zero-dim tensor, a number that may change."""
    def score_mod(score, b, h, q, k):
        return score - slope * torch.abs(q - k)
    return score_mod


def relative_position(score, b, h, q, k):
    return score + (q - k)


def rotary_part(queries, keys, group, scale):
    """MLA's part of a score that comes from other, short vectors."""
    def score_mod(score, b, h, q, k):
        return score + scale * sum(queries[b, h, q, place] * keys[b, h // group, k, place] for place in range(queries.shape[-1]))
    return score_mod


SCORES = (
    ("alibi", 24, 2, alibi(2)),
    ("softcap", 24, 1, softcap(3.0)),
    ("sandwich", 24, 2, sandwich(torch.randn(64, generator=_generator), 30, 2)),
    ("spatial_bias", 24, 2, spatial_bias(torch.randn(2, 5, generator=_generator),
                                         torch.randint(0, 5, (1, 24, 24), generator=_generator))),
    ("edge_bias", 24, 2, edge_bias(torch.randn(2, 3, 4, generator=_generator),
                                   torch.randint(0, 4, (1, 24, 24, 3), generator=_generator),
                                   torch.randint(0, 4, (1, 24, 24), generator=_generator))),
    ("activation", 24, 1, activation(24)),
    ("relative", 24, 1, relative(torch.tensor(0.25))),
    ("relative_position", 24, 1, relative_position),
    ("rotary_part", 24, 2, rotary_part(torch.randn(1, 2, 24, 4, generator=_generator),
                                       torch.randn(1, 1, 24, 4, generator=_generator), 2, 0.5)),
)
