"""The error for missing or damaged data."""

from __future__ import annotations


class DataError(ValueError):
    """Data is missing, damaged or cannot be written. The message is one sentence that says what to do."""
