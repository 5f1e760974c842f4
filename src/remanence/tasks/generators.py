"""Random numbers of one run, kept apart by what they are for."""

from __future__ import annotations

import hashlib

import torch


def generator(seed: int, purpose: str, device: torch.device | str = "cpu") -> torch.Generator:
    """A generator for one seed and one purpose, such as a split.

    It starts at `generator_seed(seed, purpose)`. Two purposes of one seed, and one purpose of two seeds, have nothing
    in common. The numbers are the same on devices of one kind; a CPU and a GPU draw different ones.
    """
    return torch.Generator(device).manual_seed(generator_seed(seed, purpose))


def generator_seed(seed: int, purpose: str) -> int:
    """The first 8 bytes, little-endian, of the SHA-256 of "seed purpose": a number below 2**64.

    Seeds made by adding or multiplying would meet: seed 1 of one split would be seed 2 of another. torch's CPU
    generator uses the lower 32 bits alone, in which these numbers are as far apart as random ones.
    """
    digest = hashlib.sha256(f"{seed} {purpose}".encode()).digest()
    return int.from_bytes(digest[:8], "little")
