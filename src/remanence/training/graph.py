"""Updates captured as CUDA graphs and replayed.

An update is hundreds of short kernels, and launching them takes the host longer than running them takes the device. A
graph is launched at once. Its results are the same because it contains the same kernels. There is one for every shape
of a batch: chunks of random lengths have dozens.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from typing import Any

import torch
from torch import Tensor, nn

from ..models.states import each, named
from ..tasks.base import Batch
from .batches import Drawn
from .config import Training
from .forward import is_stochastic
from .population import Population, Replica

WARM = 3
"""Updates before the first capture: they compile kernels and allocate optimiser state. Every further shape is captured
when it is met for the second time."""

MOST = 8
"""New shapes are captured until graphs hold one in so many parts of the memory: the allocator cannot free theirs, and
every batch longer than all before needs more."""
PATIENCE = 2
"""Captures that may lack memory before no more are tried."""


def can_capture(config: Training, population: Population) -> bool:
    """Whether all batches of one shape are the same work for one rank.

    Stacked replicas with dropout draw from several random streams in one update, and resets of carried states are drawn
    on the host. The recurrent layers of torch.nn read sequence lengths on the host.
    """
    return (
        population.device.type == "cuda"
        and population.ranks.alone
        and not config.compile
        and not config.restart
        and (len(population.replicas) == 1 or not is_stochastic(population.models[0]))
        and not any(isinstance(module, nn.RNNBase) for module in population.models[0].modules())
    )


def has_constant_lr(config: Training) -> bool:
    """Whether the learning rate is the same in every update, so that the optimiser step can be captured as well."""
    return config.schedule.name == "constant" and config.schedule.warmup == 0 and not config.jitter


class Graphs:
    """Work that is captured for every shape of a batch, and replayed.

    Args:
        work: Function to capture; its only input is a batch. It may update the carried states of replicas and draw from
            the random numbers of a single replica.
        replicas: The replicas.
        device: Device of the replicas.
        before: Graphs that these replace; they capture on the same stream, because torch has only 32.
    """

    def __init__(
        self,
        work: Callable[[Batch], None],
        replicas: list[Replica],
        device: torch.device,
        before: Graphs | None = None,
    ) -> None:
        self.work, self.replicas, self._device = work, replicas, device
        self.captured: dict[tuple[torch.Size, ...], Graph] = {}
        self.warm = 0
        self._met: set[tuple[torch.Size, ...]] = set()
        self._pool: Any = None
        """Memory of all graphs: only what is copied out of it is needed after a replay."""
        self._taken = 0
        """Its size in bytes."""
        self._lacked = 0
        """Captures for which there was not enough memory."""
        self._stream: torch.cuda.Stream | None = None if before is None else before._stream
        self._places: list[Any] = []
        """The carried states of all replicas, where graphs read and write them."""

    def replay(self, drawn: Drawn) -> bool:
        """Do the work for a batch, if batches of its shape are captured or can be now; otherwise return False.

        Raises:
            RuntimeError: The work cannot be captured.
        """
        shapes = tuple(part.shape for part in drawn.parts)
        if shapes not in self.captured:
            self.warm += 1
            if self.warm <= WARM or shapes not in self._met or not self._has_states() or self._is_full():
                self._met.add(shapes)
                return False
            before = torch.cuda.memory_reserved(self._device)
            try:
                self.captured[shapes] = self._capture(drawn)
            except torch.OutOfMemoryError:  # an update that is not captured can use what the allocator keeps
                torch.cuda.empty_cache()
                self._lacked += 1
                return False
            self._taken += max(0, torch.cuda.memory_reserved(self._device) - before)
        elif not self._has_states():
            return False
        self._take_places()
        self.captured[shapes].replay(drawn)
        return True

    def _capture(self, drawn: Drawn) -> Graph:
        parts = tuple(part.clone() for part in drawn.parts)
        here = torch.cuda.current_stream(self._device)
        if self._pool is None:
            self._pool = torch.cuda.graph_pool_handle()
        if self._stream is None:
            self._stream = torch.cuda.Stream(self._device)  # type: ignore[no-untyped-call]
        self._take_places()
        self._stream.wait_stream(here)
        noise = [replica.noise for replica in self.replicas]
        before = [one.states for one in noise]
        graph = torch.cuda.CUDAGraph()
        try:
            drawing = noise[0].active() if len(noise) == 1 else nullcontext()
            with drawing, uncollected(), torch.cuda.stream(self._stream):
                # Not `torch.cuda.graph`, which waits for all streams and empties the cache of the allocator.
                graph.capture_begin(pool=self._pool, capture_error_mode="thread_local")
                try:
                    self.work(drawn.show(parts))
                    self._return_to_places()
                except BaseException:
                    with suppress(RuntimeError):
                        graph.capture_end()
                    raise
                graph.capture_end()
            if any(not torch.equal(one.states[0], old[0]) for one, old in zip(noise, before, strict=True)):
                raise RuntimeError("random numbers are drawn on the host")
        except RuntimeError:  # nothing has run
            for one, old in zip(noise, before, strict=True):
                one.states = old
            for replica, place in zip(self.replicas, self._places, strict=bool(self._places)):
                replica.state = place
            raise
        here.wait_stream(self._stream)
        return Graph(graph, parts)

    def _is_full(self) -> bool:
        """Whether the graphs hold as much memory as they may."""
        if self._lacked >= PATIENCE:
            return True
        return self._taken > 0 and self._taken > torch.cuda.get_device_properties(self._device).total_memory / MOST

    # Carried states.

    def _has_states(self) -> bool:
        """Whether carried states exist, and places for them. A model starts a pass itself, perhaps as it learned."""
        if not any(replica.run.config.stateful for replica in self.replicas):
            return True
        if any(replica.state is None for replica in self.replicas):
            return False
        if not self._places:
            self._places = [each(Tensor.clone, replica.state) for replica in self.replicas]
        return True

    def _take_places(self) -> None:
        """Put the carried states where graphs read them."""
        for replica, place in zip(self.replicas, self._places, strict=bool(self._places)):
            if replica.state is not place:
                _copy(replica.state, place)
            replica.state = place

    def _return_to_places(self) -> None:
        """Part of a graph: put the new states where the next one reads them."""
        for replica, place in zip(self.replicas, self._places, strict=bool(self._places)):
            _copy(replica.state, place)
            replica.state = place


@contextmanager
def uncollected() -> Iterator[None]:
    """Collects no garbage meanwhile: CUDA ends a capture if a graph or a compiled kernel is destroyed during it.

    One thread at a time.
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


class Graph:
    """A captured graph and the batch that it reads."""

    def __init__(self, graph: torch.cuda.CUDAGraph, parts: tuple[Tensor, ...]) -> None:
        self.graph, self.parts = graph, parts

    def replay(self, drawn: Drawn) -> None:
        """Run the captured work on another batch of the same shape."""
        for place, part in zip(self.parts, drawn.parts, strict=True):
            place.copy_(part)
        self.graph.replay()


def _copy(state: Any, place: Any) -> None:
    for source, target in zip(named(state).values(), named(place).values(), strict=True):
        target.copy_(source)
