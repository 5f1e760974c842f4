"""The version of the package, and where it lives."""

__version__ = "0.1.0"
URL = "https://github.com/remanence-rnn/remanence"
DISTRIBUTION = "remanence-rnn"
"""What `pip install` takes: `remanence` is the name of another project there."""
