"""Download of a file from the first mirror that has it, verified by checksum."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from .checksums import checksum_of, remember
from .errors import DataError
from .writing import writing

if TYPE_CHECKING:
    from rich.progress import Progress

TIMEOUT = (10, 60)
"""Seconds to wait for a connection, and for the next bytes."""


class Bar:
    """The progress bar interface that pooch's downloader expects."""

    def __init__(self, progress: Progress, name: str):
        self.progress = progress
        self.task = progress.add_task(name, total=None)
        self.total = 0
        """Set by the downloader."""

    def update(self, count: int) -> None:
        self.progress.update(self.task, advance=count, total=self.total or None)

    def reset(self) -> None:
        self.progress.reset(self.task)

    def close(self) -> None:
        self.progress.stop_task(self.task)


@contextmanager
def bar(name: str) -> Iterator[Bar]:
    """A progress bar on a terminal, and no output in a log."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        yield Bar(progress, name)


def download(path: Path, checksum: str, places: Sequence[str]) -> None:
    """Download a file. It appears under its name only when it is complete and its checksum is correct."""
    try:
        import pooch  # type: ignore[import-untyped]
        import requests
    except ModuleNotFoundError:
        raise DataError(
            f"{path.name} could not be downloaded without package pooch; pip install 'remanence-rnn[train]'"
        ) from None

    failures = []
    for place in places:
        try:
            with writing(path) as temporary, bar(path.name) as shown:
                # Identity, because a server might otherwise decompress a .gz in transit.
                fetch = pooch.HTTPDownloader(
                    progressbar=shown, chunk_size=1 << 16, timeout=TIMEOUT, headers={"Accept-Encoding": "identity"}
                )
                fetch(place, str(temporary), None)
                found = checksum_of(temporary, checksum.partition(":")[0])
                if found != checksum:
                    raise WrongFileError
        except requests.RequestException as error:
            failures.append(f"{urlsplit(place).netloc} ({reason(error)})")
        except WrongFileError:
            failures.append(f"{urlsplit(place).netloc} (its file has a different checksum, {found})")
        else:
            remember(path, checksum)
            return
    raise DataError(f"{path.name} could not be downloaded from {' or '.join(failures)}")


class WrongFileError(Exception):
    """The downloaded file is not the published one."""


def reason(error: Exception) -> str:
    """Why a download failed, in a few words."""
    import requests

    if isinstance(error, requests.HTTPError) and error.response is not None:
        return f"status {error.response.status_code}"
    if isinstance(error, requests.Timeout):
        return "timed out"
    if isinstance(error, requests.ConnectionError):
        return "no connection"
    return type(error).__name__
