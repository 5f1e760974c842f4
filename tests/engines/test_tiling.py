"""How the fused engine tiles a task into programs. Needs no GPU."""

import pytest

from remanence.engines.triton import tiling


@pytest.fixture(autouse=True)
def fresh(monkeypatch):
    monkeypatch.setattr(tiling, "_smaller", {})


@pytest.mark.parametrize("units", [16, 128, 400, 512, 720, 1152, 2048, 4096, 8192])
@pytest.mark.parametrize("rows", [1, 20, 128, 1000])
@pytest.mark.parametrize("replicas", [1, 8])
def test_a_launch_never_has_more_programs_than_fit_at_once(units, rows, replicas):
    chip = tiling.Chip(processors=132, shared=232448)
    for backward in (False, True):
        for blocks, itemsize in ((3, 4), (5, 4), (4, 2)):
            tiles = tiling.make(units, rows, replicas, blocks, itemsize, backward, chip)
            assert tiles.at_once <= chip.processors * tiles.per_processor
            assert tiles.unit_tiles(units) <= tiles.at_once
            assert (
                tiles.per_processor * tiles.resident * tiles.unit_tile * tiles.chunks(units) * tiles.chunk * itemsize
                < chip.shared
            )


def test_small_layers_keep_all_of_their_matrix_on_chip():
    tiles = tiling.make(128, 128, 1, 4, 4, False, tiling.Chip(processors=132, shared=232448))
    assert tiles.resident == 4


def test_a_smaller_gpu_gets_fewer_programs():
    tiles = tiling.make(512, 100, 1, 4, 2, False, tiling.Chip(processors=40, shared=101376))
    assert tiles.unit_tiles(512) <= tiles.at_once <= 40


def test_out_of_resources_keeps_less_of_the_matrix_on_chip_and_then_uses_smaller_chunks():
    errors = pytest.importorskip("triton.runtime.errors")
    tried = []

    def start(tiles):
        tried.append((tiles.resident, tiles.chunk))
        if tiles.resident > 0 or tiles.chunk > 32:
            raise errors.OutOfResources(2, 1, "shared memory")

    tiles = tiling.Tiling(16, 32, 128, 8, resident=2, at_once=7)
    tiling.fitted("this", tiles, start)
    assert tried == [(2, 128), (1, 64), (0, 64), (0, 32)]
    tiling.fitted("this", tiles, start)
    assert tried[4:] == [(0, 32)]  # the tiling that fits is remembered
    tiling.fitted("that", tiles, start)
    assert tried[5:] == tried[:4]  # but not for other kernels


def test_programs_that_do_not_fit_two_by_two_run_one_by_one():
    pytest.importorskip("triton")
    tried = []

    def start(tiles):
        tried.append((tiles.at_once, tiles.per_processor))
        if tiles.per_processor > 1:
            raise RuntimeError("Triton Error [CUDA]: too many blocks in cooperative launch")

    tiles = tiling.make(128, 128, 8, 4, 4, False, tiling.Chip(processors=132, shared=232448))
    tiling.fitted("these", tiles, start)
    assert tried == [(264, 2), (132, 1)]


def test_any_other_error_is_not_swallowed():
    pytest.importorskip("triton")

    def start(tiles):
        raise RuntimeError("Triton Error [CUDA]: misaligned address")

    tiles = tiling.make(128, 128, 8, 4, 4, False, tiling.Chip(processors=132, shared=232448))
    with pytest.raises(RuntimeError, match="misaligned"):
        tiling.fitted("these", tiles, start)
