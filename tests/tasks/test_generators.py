"""Random numbers of one run."""

import hashlib

import torch

from remanence.tasks import generator
from remanence.tasks.generators import generator_seed


def test_seed_is_the_documented_one():
    digest = hashlib.sha256(b"7 validation").digest()
    assert generator_seed(7, "validation") == sum(byte << 8 * place for place, byte in enumerate(digest[:8]))
    assert generator(7, "validation").initial_seed() == generator_seed(7, "validation")


def test_seeds_differ_even_in_the_half_that_the_cpu_generator_uses():
    purposes = ("train", "validation", "test", "order")
    seeds = {generator_seed(seed, purpose) % 2**32 for seed in range(500) for purpose in purposes}
    assert len(seeds) == 500 * len(purposes)


def test_same_seed_and_purpose_same_numbers():
    first, again, other, purpose = (
        torch.rand(5, generator=generator(*which)) for which in [(1, "train"), (1, "train"), (2, "train"), (1, "test")]
    )
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert not torch.equal(first, purpose)
