"""A small GPT on the sources of Python's standard library, byte by byte: validation loss against tokens per second."""

import sysconfig
import zlib
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import nn

UNIT = "tokens"
PARAMETERS = {"layers": 4, "embed": 128, "dropout": {"default": 0.0, "low": 0.0, "high": 0.9, "affects": "trained"}}
METRICS = {"val_loss": "nats"}
FOLDER, LENGTH, BYTES = Path(sysconfig.get_path("stdlib")), 128, 256
PARTS = {"train": range(8), "validation": range(8, 9), "test": range(9, 10)}  # tenths of the files


class Windows(torch.utils.data.Dataset):
    def __init__(self, part, root):
        files = [f for f in sorted(FOLDER.glob("*.py")) if zlib.crc32(f.name.encode()) % 10 in PARTS[part]]
        self.text = np.frombuffer(b"".join(f.read_bytes() for f in files), np.uint8)

    def __len__(self):
        return (len(self.text) - 1) // LENGTH

    def __getitem__(self, i):
        window = torch.from_numpy(self.text[i * LENGTH :][: LENGTH + 1].astype(np.int64))
        return window[:-1], window[1:]


class Gpt(nn.Module):
    def __init__(self, layers, embed, dropout):
        super().__init__()
        self.tokens, self.places = nn.Embedding(BYTES, embed), nn.Embedding(LENGTH, embed)
        layer = partial(nn.TransformerEncoderLayer, embed, 4, 4 * embed, dropout, "gelu", batch_first=True)
        self.blocks = nn.ModuleList(layer(norm_first=True) for _ in range(layers))
        self.head = nn.Linear(embed, BYTES)
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(LENGTH))

    def forward(self, tokens):
        x = self.tokens(tokens) + self.places.weight
        for block in self.blocks:
            x = block(x, src_mask=self.mask, is_causal=True)
        return self.head(x)


network, dataset = Gpt, Windows


def units(inputs, targets):
    return targets.numel()


def loss(outputs, targets):
    return nn.functional.cross_entropy(outputs.flatten(0, -2), targets.flatten())


def measures(outputs, targets):
    return {"val_loss": nn.functional.cross_entropy(outputs.flatten(0, -2), targets.flatten(), reduction="none")}
