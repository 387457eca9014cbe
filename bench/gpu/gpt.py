"""A small GPT whose attention is given to it, and a stream of tokens that it can learn."""

import math

import torch
from torch import nn


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.before_attention, self.before_mlp = nn.LayerNorm(width, bias=False), nn.LayerNorm(width, bias=False)
        self.to_qkv, self.from_heads = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width, bias=False), nn.GELU(), nn.Linear(4 * width, width, bias=False))

    def forward(self, x, attend):
        """`attend` takes query, key and value [B, S, H, D]."""
        qkv = self.to_qkv(self.before_attention(x)).unflatten(-1, (3, self.heads, -1))
        x = x + self.from_heads(attend(*qkv.unbind(2)).flatten(2))
        return x + self.mlp(self.before_mlp(x))


class Gpt(nn.Module):
    """GPT-2's shape: learned positions, norms before, tied embeddings."""

    def __init__(self, layers, width, heads, vocabulary, length):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.last_norm = nn.LayerNorm(width, bias=False)
        for name, weight in self.named_parameters():
            if weight.dim() == 2:
                into_residual = name.endswith(("from_heads.weight", "mlp.2.weight"))
                nn.init.normal_(weight, std=0.02 / math.sqrt(2 * layers) if into_residual else 0.02)

    def loss(self, tokens, attention_of_layer):
        """Mean cross entropy of the next tokens. `attention_of_layer(layer)` gives what that layer's block attends with."""
        x = self.tokens(tokens[:, :-1]) + self.positions.weight[:tokens.shape[1] - 1]
        for layer, block in enumerate(self.blocks):
            x = block(x, attention_of_layer(layer))
        logits = self.last_norm(x) @ self.tokens.weight.T
        return nn.functional.cross_entropy(logits.flatten(0, 1).float(), tokens[:, 1:].flatten())


class TokenStream:
    """Packed documents, each of which repeats a phrase of its own, with mistakes.

    Three things can be learned, one after the other: common tokens are more frequent; every second token follows from the one
    before it, in all documents alike; the others stand earlier in the document, so that it takes attention to know them.
    """

    MISTAKES = 0.1
    SHORTEST_PHRASE, LONGEST_PHRASE = 16, 128  # tokens; even

    def __init__(self, batch, length, documents, vocabulary, device):
        self.batch, self.length, self.documents, self.vocabulary, self.device = batch, length, documents, vocabulary, device
        self.follower = torch.randperm(vocabulary, generator=torch.Generator().manual_seed(11)).to(device)

    def step(self, number):
        """(tokens [B, S + 1], doc int32 [B, S]) of step `number`: the same for everyone who asks."""
        random = torch.Generator(device=self.device).manual_seed(1000 + number)
        shape = (self.batch, self.length + 1)
        starts = torch.randint(1, self.length, (self.batch, self.documents - 1), generator=random, device=self.device)
        position = torch.arange(self.length + 1, device=self.device).expand(shape)
        doc = (position[:, :, None] >= starts[:, None, :]).sum(2)
        pairs = torch.randint(self.SHORTEST_PHRASE // 2, self.LONGEST_PHRASE // 2, (self.batch, self.documents),
                              generator=random, device=self.device).gather(1, doc)
        phrases = self._random_tokens((self.batch, self.documents * self.LONGEST_PHRASE // 2), random)
        first_of_pair = phrases.gather(1, doc * (self.LONGEST_PHRASE // 2) + position // 2 % pairs)
        meant = torch.where(position % 2 == 0, first_of_pair, self.follower[first_of_pair])
        mistaken = torch.rand(shape, generator=random, device=self.device) < self.MISTAKES
        tokens = torch.where(mistaken, self._random_tokens(shape, random), meant)
        return tokens, doc[:, :-1].int().contiguous()

    def _random_tokens(self, shape, random):
        """Small numbers are the common ones."""
        return (torch.rand(shape, generator=random, device=self.device).square() * self.vocabulary).long()
