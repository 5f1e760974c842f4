"""Text corpora: read and tokenised once, cached on disk and memory-mapped.

A corpus has a vocabulary and three streams of token ids, for training, validation and testing.
"""

from .corpus import Corpus
from .lanes import Chunk, batches, chunks, jittered_lengths
from .loading import load
from .markov import markov
from .named import KNOWN
from .vocabulary import END, UNKNOWN, Level, Vocabulary
from .wikipedia import clean

__all__ = [
    "END",
    "KNOWN",
    "UNKNOWN",
    "Chunk",
    "Corpus",
    "Level",
    "Vocabulary",
    "batches",
    "chunks",
    "clean",
    "jittered_lengths",
    "load",
    "markov",
]
