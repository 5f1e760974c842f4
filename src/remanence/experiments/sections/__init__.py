"""From folders of results to the sections of a report."""

from .gathering import gather

__all__ = ["gather"]
