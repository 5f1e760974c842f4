"""The on-disk cache shared by processes: used if it can be trusted, rebuilt if not."""

import json
import os
import random
import shutil
import stat
import subprocess
import sys
import threading
import warnings
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

import remanence as rm
from remanence.cells import LSTMCell
from remanence.engines import KNOWN, agreement, comparison, loop, self_check
from remanence.engines.cpp import compiler, engine, products, recurrence
from remanence.engines.kernels import cache, compiling
from remanence.engines.samples import SIZES, make_task
from remanence.files import TEMPORARY
from remanence.gates import Fast

CPU = torch.device("cpu")
compiles = pytest.mark.skipif(engine.lacks() is not None, reason="no C++ compiler")
posix = pytest.mark.skipif(os.name != "posix", reason="owners and modes are those of POSIX")


@pytest.fixture
def kernels(tmp_path, monkeypatch):
    """The folder of kernels, which does not exist yet."""
    monkeypatch.setenv("REMANENCE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "kernels"


def mode(path):
    return stat.S_IMODE(path.lstat().st_mode)


# Files.


def test_a_cached_file_is_found_by_its_name_alone(kernels):
    name = cache.file_name(["all", "that"], "so")
    assert cache.find(name) is cache.read(name) is None
    path = cache.keep(name, b"machine code")
    assert path.parent == kernels
    assert path.suffix == ".so"
    assert (cache.find(name), cache.read(name)) == (path, b"machine code")
    assert cache.find(cache.file_name(["all", "this"], "so")) is None
    assert cache.find(cache.file_name(["all", "that"], "cubin")) is None


DAMAGES = {
    "nothing left": lambda content: b"",
    "cut": lambda content: content[: len(content) // 2],
    "cut at the end": lambda content: content[:-1],
    "one bit": lambda content: content[:100] + bytes([content[100] ^ 1]) + content[101:],
    "longer": lambda content: content + b"\0",
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_file_is_ignored(kernels, damage):
    name = cache.file_name([], "so")
    path = cache.keep(name, bytes(range(200)))
    path.write_bytes(DAMAGES[damage](path.read_bytes()))
    assert cache.read(name) is None
    assert list(kernels.iterdir()) == []
    cache.keep(name, b"again")
    assert cache.read(name) == b"again"


def test_a_library_truncated_anywhere_is_ignored(kernels):
    name, content = cache.file_name([], "so"), random.Random(1).randbytes(20_000)
    for length in sorted({0, 1, 63, 64, 4095, 4096, 19_999, *random.Random(2).sample(range(20_000), 100)}):
        cache.keep(name, content).write_bytes(content[:length])
        assert cache.find(name) is None
    cache.keep(name, content)
    assert cache.read(name) == content


@posix
def test_a_link_in_place_of_a_file_is_removed_and_what_is_kept_beside_it_serves(kernels, tmp_path):
    name = cache.file_name([], "so")
    path = cache.keep(name, b"content")
    link = path.with_name(f"{path.name.split('.')[0]}.{'0' * cache.DIGITS}.so")
    (tmp_path / "elsewhere").write_bytes(b"planted")
    link.symlink_to(tmp_path / "elsewhere")
    assert cache.read(name) == b"content"
    assert not link.is_symlink()
    assert (tmp_path / "elsewhere").read_bytes() == b"planted"


def test_a_folder_in_place_of_a_file_is_removed(kernels):
    name = cache.file_name([], "so")
    path = cache.keep(name, b"content")
    path.unlink()
    (path / "inner").mkdir(parents=True)
    assert cache.read(name) is None
    assert list(kernels.iterdir()) == []
    assert cache.keep(name, b"content") == path
    assert cache.read(name) == b"content"


@posix
def test_a_file_that_cannot_be_removed_hides_no_other(kernels, monkeypatch):
    name = cache.file_name([], "so")
    path = cache.keep(name, b"content")
    path.with_name(f"{path.name.split('.')[0]}.{'0' * cache.DIGITS}.so").touch()
    monkeypatch.setattr(Path, "unlink", denied)
    assert cache.read(name) == b"content"


def denied(*_, **__):
    raise PermissionError(1, "Operation not permitted")


@posix
def test_a_file_that_another_user_can_have_written_is_ignored(kernels, tmp_path):
    name = cache.file_name([], "so")
    path = cache.keep(name, b"content")
    assert mode(path) == 0o600
    path.chmod(0o660)
    assert cache.read(name) is None
    path = cache.keep(name, b"content")
    path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    assert cache.read(name) is None


# The folder.


@posix
def test_the_folder_is_private(kernels):
    before = os.umask(0)
    try:
        assert cache.folder() == kernels
    finally:
        os.umask(before)
    assert mode(kernels) == 0o700
    assert mode(kernels.parent) == 0o755  # data sets may be there, too


def others_may_write(kernels, monkeypatch):
    kernels.mkdir(parents=True)
    kernels.chmod(0o777)
    return "others may write to it"


def group_may_write(kernels, monkeypatch):
    kernels.mkdir(parents=True)
    kernels.chmod(0o770)
    return "others may write to it"


def a_link(kernels, monkeypatch):
    kernels.parent.mkdir()
    real = kernels.parent / "real"
    real.mkdir(0o700)
    kernels.symlink_to(real)
    return "it is a link or a file"


def another_users(kernels, monkeypatch):
    kernels.mkdir(parents=True, mode=0o700)
    owner = os.geteuid()
    monkeypatch.setattr(cache.os, "geteuid", lambda: owner + 1)
    return "it belongs to another user"


def in_a_folder_for_all(kernels, monkeypatch):
    kernels.mkdir(parents=True, mode=0o700)
    kernels.parent.chmod(0o777)
    return f"others may write to {kernels.parent}"


def behind_a_link_into_a_folder_for_all(kernels, monkeypatch):
    everybodys = kernels.parents[1] / "everybodys"
    (everybodys / "cache" / "kernels").mkdir(parents=True, mode=0o700)
    everybodys.chmod(0o777)
    kernels.parent.symlink_to(everybodys / "cache")
    return f"others may write to {everybodys}"


EXPOSED = [
    *(others_may_write, group_may_write, a_link, another_users, in_a_folder_for_all),
    behind_a_link_into_a_folder_for_all,
]


@posix
@pytest.mark.parametrize("expose", EXPOSED)
def test_a_folder_that_is_not_private_is_not_used_with_one_warning(kernels, expose, monkeypatch):
    name = cache.file_name([], "so")
    planted = cache.keep(name, b"planted")
    shutil.move(planted, kernels.parents[1] / planted.name)
    shutil.rmtree(kernels.parent)
    reason = expose(kernels, monkeypatch)
    shutil.move(kernels.parents[1] / planted.name, planted)
    with pytest.warns(UserWarning, match="expected .* to be a folder that only this user can write to") as told:
        private = cache.folder()
    (warning,) = told
    assert f"but {reason}: " in str(warning.message)
    assert "\n" not in str(warning.message)
    assert private != kernels
    assert mode(private) == 0o700
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert cache.folder() == private
        assert cache.read(name) is None
        monkeypatch.undo()  # the files there are this user's
        monkeypatch.setenv("REMANENCE_CACHE", str(kernels.parent))
        if expose is not another_users:
            cache.keep(name, b"own")
            assert cache.read(name) == b"own"
    assert planted.read_bytes() == b"planted"


def a_file(root, monkeypatch):
    root.parent.joinpath("file").touch()
    return root.parent / "file"


def below_a_file(root, monkeypatch):
    return a_file(root, monkeypatch) / "cache"


def of_the_system(root, monkeypatch):
    if not Path("/proc/1").exists():
        pytest.skip("no /proc")
    return Path("/proc/1/x")


def of_nobody(root, monkeypatch):
    return Path("~nobody-of-this-name/cache")


@pytest.fixture
def own(monkeypatch):
    """No temporary folders yet, as in a new process."""
    monkeypatch.setattr(cache, "_own", {})


@posix
@pytest.mark.parametrize("choose", [a_file, below_a_file, of_the_system, of_nobody])
def test_a_folder_that_cannot_be_created_is_replaced_with_one_warning(kernels, choose, own, monkeypatch):
    monkeypatch.setenv("REMANENCE_CACHE", str(choose(kernels.parent, monkeypatch)))
    with pytest.warns(UserWarning, match="expected .* to be a folder that only this user can write to, but ") as told:
        private = cache.folder()
    (warning,) = told
    assert "\n" not in str(warning.message)
    assert mode(private) == 0o700
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        cache.keep("name.so", b"content")
        assert cache.read("name.so") == b"content"
        assert cache.is_temporary()


@posix
def test_a_folder_that_cannot_be_written_is_read_and_one_warning_says_so(kernels, own, monkeypatch):
    path, written = cache.keep("old.so", b"old"), cache._written
    assert not cache.is_temporary()

    def write(path, content):
        return denied() if path.parent == kernels else written(path, content)

    monkeypatch.setattr(cache, "_written", write)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert cache.find("old.so") == path
        assert not cache.is_temporary()
    with pytest.warns(UserWarning, match=r"but it cannot be written \(Operation not permitted\): ") as told:
        new = cache.keep("new.so", b"new")
    assert len(told) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        cache.keep("newer.so", b"newer")
    assert new.parent != kernels
    assert (cache.read("old.so"), cache.read("new.so"), cache.read("newer.so")) == (b"old", b"new", b"newer")
    assert cache.is_temporary()


@posix
def test_a_folder_in_a_shared_sticky_one_is_used(kernels):
    kernels.parent.mkdir()
    kernels.parent.chmod(0o1777)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert cache.folder() == kernels


# Libraries.


TRIVIAL = 'extern "C" int number() { return NUMBER; }'


@pytest.fixture
def compilations(monkeypatch):
    """The sources that were compiled."""
    found, compile_ = [], compiler._compile

    def counted(text, options, file):
        found.append(text)
        compile_(text, options, file)

    monkeypatch.setattr(compiler, "_compile", counted)
    return found


@compiles
def test_a_library_requested_by_several_threads_is_compiled_once(kernels, compilations):
    found = compiling.side_by_side([lambda: compiler.library(TRIVIAL, {"NUMBER": 8}).number()] * 4)
    assert found == [8] * 4
    assert len(compilations) == 1


@compiles
@posix
def test_a_library_is_compiled_once_where_nothing_can_be_cached(kernels, own, compilations, monkeypatch):
    monkeypatch.setenv("REMANENCE_CACHE", str(a_file(kernels.parent, monkeypatch)))
    with pytest.warns(UserWarning, match="but it cannot be created"):
        found = [compiler.library(TRIVIAL, {"NUMBER": 7}).number() for _ in range(2)]
    assert found == [7, 7]
    assert len(compilations) == 1


@compiles
def test_an_error_of_one_of_several_is_raised():
    def fails():
        raise compiler.CompilerError("no licence")

    with pytest.raises(compiler.CompilerError, match="no licence"):
        compiling.side_by_side([list, fails, list])


@compiles
def test_a_library_without_the_functions_is_recompiled(kernels, compilations):
    compiler.library(TRIVIAL, {"NUMBER": 9})
    (path,) = kernels.iterdir()
    other = compiler.library('extern "C" int nothing() { return 0; }')._name
    key = path.name.split(".")[0]
    path.unlink()
    cache.keep(f"{key}.so", Path(other).read_bytes())
    assert compiler.library(TRIVIAL, {"NUMBER": 9}, ["number"]).number() == 9
    assert len(compilations) == 3
    with pytest.raises(compiler.CompilerError, match="expected a library with other"):
        compiler.library(TRIVIAL, {"NUMBER": 9}, ["other"])


@compiles
@pytest.mark.parametrize(("save", "expected"), [(False, {(0, 0)}), (True, {(0, 1), (1, None)})])
def test_a_layer_compiles_the_passes_it_needs_and_no_more(save, expected, monkeypatch):
    wanted = []

    def library(text, constants=None, functions=()):
        if constants is not None:
            wanted.append((constants["BACKWARD"], constants.get("SAVE")))
        return SimpleNamespace(**{name: SimpleNamespace() for name in functions})

    known = (recurrence.failure, recurrence._forward, recurrence._backward, products.products)
    for each in known:
        each.cache_clear()
    monkeypatch.setattr(recurrence, "library", library)
    task = make_task(LSTMCell(Fast()), SIZES, torch.float32, CPU)
    task.inputs.requires_grad_(save)
    assert engine.refuses(task) is None
    for each in known:
        each.cache_clear()
    assert set(wanted) == expected
    assert len(wanted) == len(expected)


# Messages.


@pytest.fixture
def clock(monkeypatch):
    """Reset the clock, with no patience."""
    monkeypatch.setattr(compiling, "_clock", compiling._Clock())
    monkeypatch.setattr(compiling, "PATIENCE", 0.0)
    monkeypatch.delenv("REMANENCE_QUIET", raising=False)
    return monkeypatch


def compile_for_long():
    with compiling.told():
        timer = compiling._clock.timer
        if timer is not None:
            timer.join()


def test_a_long_compilation_prints_one_message(clock, capsys):
    for _ in range(3):
        compile_for_long()
    assert capsys.readouterr() == ("", f"{compiling.MESSAGE}\n")


def test_quiet_mode_prints_no_message(clock, capsys):
    clock.setenv("REMANENCE_QUIET", "1")
    compile_for_long()
    assert capsys.readouterr() == ("", "")


def test_a_short_compilation_prints_no_message(clock, capsys):
    clock.setattr(compiling, "PATIENCE", 3600.0)
    with compiling.told():
        timer = compiling._clock.timer
        with compiling.told():
            pass
        assert timer.is_alive()
    timer.join()
    assert capsys.readouterr() == ("", "")
    assert compiling._clock.spent > 0


def test_a_background_job_that_fails_is_silent(capsys):
    done = threading.Event()

    def fails():
        done.set()
        raise RuntimeError("no licence")

    compiling.begin(fails)
    assert done.wait(60)
    assert capsys.readouterr() == ("", "")


# Agreement with the loop.


@pytest.fixture
def looked(kernels, monkeypatch):
    """The engines that were checked, and a function that returns whether one is trusted, as in a new process."""
    found, look = [], self_check.look

    def counted(of, *rest):
        found.append(of.name)
        return look(of, *rest)

    monkeypatch.setattr(self_check, "look", counted)

    def again(of):
        monkeypatch.setattr(self_check, "_seen", {})
        return self_check.self_check(of, CPU) is None

    return found, again


def fake(run, made_of=("a compiler",), name="fake"):
    return SimpleNamespace(name=name, run=run, refuses=lambda task: None, made_of=lambda device: made_of)


def wrong(task):
    result = loop.run(task)
    return result._replace(output=result.output * 1.01)


def test_an_engine_that_agreed_is_not_checked_again(looked, kernels):
    found, again = looked
    assert again(fake(loop.run))
    assert again(fake(wrong))  # not checked again
    assert found == ["fake"]
    (kept,) = kernels.iterdir()
    assert kept.suffix == ".agrees"


def test_an_engine_that_disagreed_is_checked_in_every_process(looked, kernels):
    found, again = looked
    assert not again(fake(wrong))
    assert not again(fake(wrong))
    assert again(fake(loop.run))
    assert len(found) == 3


def test_an_engine_without_made_of_is_checked_again(looked):
    found, again = looked
    nameless = SimpleNamespace(name="fake", run=loop.run, refuses=lambda task: None)
    assert again(nameless)
    assert again(nameless)
    assert len(found) == 2


CHANGES = {
    "torch": lambda patch: patch.setattr(torch, "__version__", "99.0"),
    "source": lambda patch: patch.setattr(agreement, "source", lambda: "another"),
    "precision": lambda patch: patch.setattr(self_check, "precision_of", lambda device: comparison.FULL),
    "compiler": lambda patch: None,
    "name": lambda patch: None,
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_of_anything_that_results_depend_on_triggers_a_new_check(looked, change, monkeypatch):
    found, again = looked
    assert again(fake(loop.run))
    with monkeypatch.context() as changed:
        CHANGES[change](changed)
        other = {"compiler": {"made_of": ("another",)}, "name": {"name": "other"}}.get(change, {})
        assert again(fake(loop.run, **other))
    assert len(found) == 2
    assert again(fake(loop.run))
    assert len(found) == 2


@posix
def test_without_a_cache_engines_are_checked_once_in_every_process(looked, own, tmp_path, monkeypatch):
    found, again = looked
    monkeypatch.setenv("REMANENCE_CACHE", str(a_file(tmp_path / "cache", monkeypatch)))
    for count in (1, 2):
        with pytest.warns(UserWarning, match="but it cannot be created"):
            assert again(fake(loop.run))
        assert again(fake(loop.run))
        assert len(found) == count
        monkeypatch.setattr(cache, "_own", {})


@pytest.mark.parametrize("file", ["engines/cpp/steps.cpp", "engines/kernels/functions.cuh", "cells/lstm.py"])
def test_the_source_digest_covers_kernels_cells_and_engines(file, tmp_path, monkeypatch):
    before = agreement.source()
    for folder in agreement.FOLDERS:
        shutil.copytree(agreement.PACKAGE / folder, tmp_path / folder)
    monkeypatch.setattr(agreement, "PACKAGE", tmp_path)
    assert agreement.source.__wrapped__() == before
    path = tmp_path / file
    path.write_bytes(path.read_bytes() + b"\n")
    assert agreement.source.__wrapped__() != before


@compiles
def test_engines_that_compile_have_made_of():
    for name in ("cuda", "triton", "c++"):
        assert callable(KNOWN[name].made_of)
    assert compiler.compiler()[1] in KNOWN["c++"].made_of(CPU)


# Processes.


LAYER = """
import json, sys, warnings
import torch
import remanence as rm
from remanence.engines import self_check
from remanence.engines.cpp import compiler

looked, compiled, look, compile_ = [], [], self_check.look, compiler._compile
self_check.look = lambda *rest: looked.append(1) or look(*rest)
compiler._compile = lambda *rest: compiled.append(1) or compile_(*rest)

def run(engine):
    torch.manual_seed(0)
    layer = rm.PowerLawLSTM(3, 8, engine=engine)
    output, _ = layer(torch.randn(5, 4, 3))
    return [output, *torch.autograd.grad(output.square().sum(), layer.parameters())]

with warnings.catch_warnings(record=True) as told:
    warnings.simplefilter("always")
    found = run("auto")
chosen = rm.engines.explain(rm.PowerLawLSTM(3, 8)).engine
error = max(float((a - b).norm() / b.norm()) for a, b in zip(found, run("loop"), strict=True))
print(json.dumps({"looked": len(looked), "compiled": len(compiled), "engine": chosen, "error": error,
                  "told": [str(one.message) for one in told]}))
"""
PIECES = 4
"""Number of libraries it needs: a trial, matmuls, and both passes of the layer, which is the one that is checked."""


def started(kernels, **environment):
    command = [sys.executable, "-c", LAYER]
    folders = os.pathsep.join([str(Path(rm.__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
    environment = {"REMANENCE_CACHE": str(kernels.parent), "PYTHONPATH": folders, **environment}
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ | environment
    )


def ended(process):
    output, errors = process.communicate()
    assert process.returncode == 0, errors
    found = json.loads(output)
    assert found.pop("error") < 1e-5
    assert found.pop("engine") == "c++"
    return found


@pytest.fixture(scope="module")
def filled(tmp_path_factory):
    """The folder of kernels after two concurrent processes, and what they did."""
    kernels = tmp_path_factory.mktemp("filled") / "cache" / "kernels"
    both = [started(kernels) for _ in range(2)]
    return kernels, [ended(process) for process in both]


@pytest.mark.long
@compiles
def test_two_processes_fill_the_folder_at_once(filled):
    kernels, found = filled
    assert any(each["looked"] for each in found)  # the other one may come late
    assert all(each["compiled"] and not each["told"] for each in found)
    assert not [path for path in kernels.iterdir() if path.name.startswith(TEMPORARY)]
    keys = {path.name.split(".")[0] for path in kernels.iterdir()}
    assert len(keys) == PIECES + 1


@compiles
def test_another_process_neither_compiles_nor_checks(filled):
    kernels, _ = filled
    assert ended(started(kernels)) == {"looked": 0, "compiled": 0, "told": []}


@pytest.mark.long
@compiles
def test_damaged_libraries_are_recompiled_and_nothing_breaks(filled, tmp_path):
    kernels = tmp_path / "cache" / "kernels"
    shutil.copytree(filled[0], kernels)
    libraries = sorted(kernels.glob("*.so"))
    for number, path in enumerate(libraries):
        content = path.read_bytes()
        flipped = content[:5000] + bytes([content[5000] ^ 1]) + content[5001:]
        path.write_bytes([content[:64], content[: len(content) // 2], content[:-1], flipped][number % 4])
    found = ended(started(kernels))
    assert found == {"looked": 0, "compiled": PIECES, "told": []}
    assert ended(started(kernels))["compiled"] == 0


@pytest.mark.long
@compiles
def test_libraries_with_other_functions_are_recompiled(filled, tmp_path, monkeypatch):
    kernels = tmp_path / "cache" / "kernels"
    shutil.copytree(filled[0], kernels)
    monkeypatch.setenv("REMANENCE_CACHE", str(kernels.parent))
    keys = {path.name.split(".")[0] for path in kernels.glob("*.so")}
    other = Path(compiler.library('extern "C" int nothing() { return 0; }')._name).read_bytes()
    for path in kernels.glob("*.so"):
        path.unlink()
    for key in keys:
        cache.keep(f"{key}.so", other)
    assert ended(started(kernels))["compiled"] == PIECES - 1  # no function of the trial is called


@compiles
@posix
def test_a_layer_uses_a_temporary_folder_if_the_cache_is_world_writable(filled, tmp_path):
    kernels, temporary = tmp_path / "cache" / "kernels", tmp_path / "temporary"
    temporary.mkdir()
    shutil.copytree(filled[0], kernels)
    kernels.chmod(0o777)
    before = sorted(kernels.iterdir())
    found = ended(started(kernels, TMPDIR=str(temporary)))
    assert (found["looked"], found["compiled"]) == (1, PIECES)
    (sentence,) = found["told"]
    assert sentence.startswith(f"expected {kernels} to be a folder that only this user can write to, but others may")
    assert sorted(kernels.iterdir()) == before
    assert list(temporary.iterdir()) == []
