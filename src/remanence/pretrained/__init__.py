"""Saved models: a folder with weights and a configuration, local or on the Hugging Face Hub. Nothing is unpickled."""

from .arguments import plain, restored
from .folder import is_pretrained
from .mixin import KNOWN, Pretrained, describe, make, opened, register

__all__ = ["KNOWN", "Pretrained", "describe", "is_pretrained", "make", "opened", "plain", "register", "restored"]
