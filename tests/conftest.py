"""What tests of several rooms share."""

import importlib.util
import os
import random
import shutil
import sys
import warnings
import zlib
from contextlib import contextmanager
from pathlib import Path

import hypothesis
import numpy
import pytest
import torch

from remanence import data
from remanence.engines import streaming

DOCS = Path(__file__).parents[1] / "docs"
REAL = os.environ.get("REMANENCE_DATA")  # before any test sets it
SEED = "REMANENCE_TEST_SEED"
IN_MAKE_TEST = pytest.StashKey()
"""Names of tests that are not long, by folder."""


def seed_torch(seed):
    """Like `torch.manual_seed`, which formats the stack for every kind of device that is not there: milliseconds."""
    torch.default_generator.manual_seed(seed)
    if torch.cuda.is_available():
        torch.cuda.manual_seed_all(seed)


class TorchRandom:
    """Torch's generator as hypothesis takes it: every example of a test begins at the same state, the test's own."""

    test = 0

    def seed(self, seed):
        seed_torch(self.test + seed)

    def getstate(self):
        return torch.get_rng_state()

    def setstate(self, state):
        torch.set_rng_state(state)


TORCH = TorchRandom()
hypothesis.register_random(TORCH)
# No deadlines: a busy machine would fail tests that are right.
hypothesis.settings.register_profile("remanence", deadline=None)
hypothesis.settings.load_profile("remanence")


def pytest_addoption(parser):
    parser.addoption("--seed", type=int, help=f"base seed of what tests draw; {SEED} or 0 unless told")


@pytest.hookimpl(tryfirst=True)  # before hypothesis reads its seed
def pytest_configure(config):
    if config.option.seed is None:
        config.option.seed = int(os.environ.get(SEED, "0"))
    if getattr(config.option, "hypothesis_seed", None) is None:
        config.option.hypothesis_seed = str(config.option.seed)  # as if given on the command line


@pytest.hookimpl(tryfirst=True)  # before -m and -k take some away
def pytest_collection_modifyitems(config, items):
    config.stash[IN_MAKE_TEST] = {}
    for item in items:
        found = config.stash[IN_MAKE_TEST].setdefault(item.path.parent, [])
        if item.get_closest_marker("long") is None:
            found.append(item.name)


def pytest_report_header(config):
    return f"base seed: {config.option.seed}"


def seed_all(config, name):
    """Every test draws numbers of its own, the same in every run and order; another base seed gives others."""
    TORCH.test = zlib.crc32(f"{config.option.seed} {name}".encode())
    random.seed(TORCH.test)
    numpy.random.seed(TORCH.test)  # noqa: NPY002  the global generator is what is seeded
    seed_torch(TORCH.test)


@pytest.fixture(autouse=True)
def seeded(request):
    seed_all(request.config, request.node.nodeid)


@pytest.fixture(scope="session")
def in_make_test(request):
    return request.config.stash[IN_MAKE_TEST]


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef, request):
    """What several tests share has a seed of its own, and the test that happens to come first draws on as if alone."""
    if fixturedef.scope == "function":
        return (yield)
    states = TORCH.test, random.getstate(), numpy.random.get_state(), torch.get_rng_state()  # noqa: NPY002
    seed_all(request.config, f"{fixturedef.baseid} {fixturedef.argname} {getattr(request, 'param', '')}")
    try:
        return (yield)
    finally:
        TORCH.test = states[0]
        random.setstate(states[1])
        numpy.random.set_state(states[2])  # noqa: NPY002
        torch.set_rng_state(states[3])


@pytest.fixture
def own(tmp_path, monkeypatch):
    """Folders of the test's own and no network: the data folder, whose neighbour is the cache folder."""
    folder = tmp_path / "data"
    folder.mkdir()
    monkeypatch.setenv("REMANENCE_DATA", str(folder))
    monkeypatch.setenv("REMANENCE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("REMANENCE_OFFLINE", "1")
    return folder


@pytest.fixture(scope="session")
def real_data(tmp_path_factory):
    """A context in which a real data set is found, with one cache for all; skips where it is not there."""
    cache = tmp_path_factory.mktemp("cache")

    @contextmanager
    def present(name):
        if not REAL:
            pytest.skip("REMANENCE_DATA is not set: no real data")
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("REMANENCE_DATA", REAL)
            patch.setenv("REMANENCE_CACHE", str(cache))
            patch.setenv("REMANENCE_OFFLINE", "1")
            if data.KNOWN[name].find() is None:
                pytest.skip(f"{name} is not in REMANENCE_DATA")
            yield

    yield present
    shutil.rmtree(cache)  # half a gigabyte with enwik8


@pytest.fixture(scope="session")
def docs_script():
    """A function: the script of docs/ with this name, as a module."""

    def script(name):
        spec = importlib.util.spec_from_file_location(f"docs_{name}", DOCS / f"{name}.py")
        module = importlib.util.module_from_spec(spec)
        with pytest.MonkeyPatch.context() as patch:
            patch.setitem(sys.modules, spec.name, module)  # dataclasses look their module up
            patch.syspath_prepend(DOCS)  # scripts share what they read
            spec.loader.exec_module(module)
        return module

    return script


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


@pytest.fixture
def quick_steps(monkeypatch):
    """Whether each requested compiled step ran."""
    found, run = [], streaming.QuickSteps.step

    def step(*given):
        after = run(*given)
        found.append(after is not None)
        return after

    monkeypatch.setattr(streaming.QuickSteps, "step", step)
    return found
