"""Models as folders of weights and plain data, on a disk or on the Hugging Face Hub. Nothing is unpickled."""

from .arguments import plain, restored
from .folder import is_pretrained
from .mixin import KNOWN, Pretrained, describe, make, opened, register

__all__ = ["KNOWN", "Pretrained", "describe", "is_pretrained", "make", "opened", "plain", "register", "restored"]
