"""What is said when data are missing or damaged."""

from __future__ import annotations


class DataError(ValueError):
    """Data that are missing, damaged or cannot be written, in one sentence that says what to do."""
