"""What tests of several rooms share."""

import warnings
from contextlib import contextmanager

import pytest
import torch


@pytest.fixture
def never_waits():
    """A context in which it is an error if the host waits for the GPU."""

    @contextmanager
    def watched():
        torch.cuda.synchronize()
        try:
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", message="Synchronization debug mode")
                torch.cuda.set_sync_debug_mode("error")
            yield
        finally:
            torch.cuda.set_sync_debug_mode("default")

    return watched
