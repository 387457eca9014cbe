"""Drop-ins for callers of other libraries, with those libraries' names, layouts and rules, on torch tensors.

`flashmask` for Paddle's flashmask_attention, `flash_attn` for flash-attn, `flex` for torch's FlexAttention, `scfa` for
dynamic-sparse-flash-attention, `transformers` for Hugging Face's models. Each is imported by its own name:
``from flashspan.compat import flash_attn``. What a library has and Flashspan has not is refused with an UnsupportedError before
anything is launched, never ignored. Results are computed as `flashspan.attention` computes them: a query that sees nothing
gives out = 0, lse = -inf and no gradient.
"""
