"""Independent random number generators of one run, one per purpose."""

from __future__ import annotations

import hashlib

import torch


def generator(seed: int, purpose: str, device: torch.device | str = "cpu") -> torch.Generator:
    """A generator for one seed and one purpose, such as a split.

    It is seeded with `generator_seed(seed, purpose)`. Generators with different seeds or purposes are independent.
    Random numbers are the same on devices of the same type; a CPU and a GPU draw different ones.

    Args:
        seed: Seed of the run.
        purpose: Text that tells streams of random numbers apart, such as a split.
        device: Device of the generator.
    """
    return torch.Generator(device).manual_seed(generator_seed(seed, purpose))


def generator_seed(seed: int, purpose: str) -> int:
    """The first 8 bytes, little-endian, of the SHA-256 of "seed purpose": an integer below 2**64.

    Seeds made by adding or multiplying would collide: seed 1 of one split would be seed 2 of another. torch's CPU
    generator uses only the lower 32 bits, which are as well distributed as random numbers here.
    """
    digest = hashlib.sha256(f"{seed} {purpose}".encode()).digest()
    return int.from_bytes(digest[:8], "little")
