"""The version of the package, its URL and its name on PyPI."""

__version__ = "0.1.0"
URL = "https://github.com/remanence-rnn/remanence"
DISTRIBUTION = "remanence-rnn"
"""The name for `pip install`: on PyPI `remanence` is another project."""
