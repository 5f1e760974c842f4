"""`remanence run my.yaml`: a user-defined experiment and task, without touching the package."""

import shutil
import sys
import textwrap

import pytest
import typer
from typer.testing import CliRunner

from remanence.cli import inspect, run, show
from remanence.experiments import find, load_model
from remanence.experiments.sections import gather

app = typer.Typer(pretty_exceptions_enable=False)
for name, module in (("show", show), ("run", run), ("inspect", inspect)):
    app.command(name)(module.command)

MODULE = """
from dataclasses import dataclass

import torch
from remanence import tasks


@dataclass(frozen=True, kw_only=True)
class Waves(tasks.DataTask):
    steps: int = 8
    count: int = 40

    def read(self):
        times = torch.rand(self.count, self.steps, generator=torch.Generator().manual_seed(0)).cumsum(1)
        data = tasks.SequenceData(torch.sin(times), torch.sin(times[:, -1:] + 1), times=times)
        train, validation = data.split(0.2)
        return {"train": train, "validation": validation}


class Bare(tasks.DataTask):
    def read(self):
        return {}


@dataclass(frozen=True)
class Unfinished(tasks.Task):
    name = "unfinished"
"""
FILE = """
id: mine/waves
title: Waves
task: {name: "MODULE:Waves", steps: 6}
model: {hidden_size: 4}
models:
  plstm: {}
  torch-lstm: {dt_input: true}
training: {batch: 8, epochs: 1}
seeds: 1
"""


def call(*words):
    return CliRunner().invoke(app, [str(word) for word in words], env={"NO_COLOR": "1", "COLUMNS": "200"})


@pytest.fixture
def own(tmp_path, monkeypatch, request):
    """A folder with a file and the module it names, which has a name of its own in every test."""
    name = f"waves_{abs(hash(request.node.name))}"
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / f"{name}.py").write_text(MODULE)
    (folder / "my.yaml").write_text(FILE.replace("MODULE", name))
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield folder
    sys.modules.pop(name, None)


def module_of(own):
    return next(own.glob("waves_*.py")).stem


@pytest.mark.long
def test_a_user_defined_file_is_shown_run_reported_and_inspected(own, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # the module is found beside the file
    shown = call("show", "mine/my.yaml")
    assert shown.exit_code == 0, shown.output
    assert "dt_input yes" in shown.output
    assert "remanence run mine/my.yaml --preset short" in shown.output
    done = call("run", "mine/my.yaml", "--quiet", "--device", "cpu")
    assert done.exit_code == 0, done.output
    assert "validation loss of the weights" in done.output
    assert call("run", "mine/my.yaml", "--quiet", "--device", "cpu").stdout == done.stdout

    # A run folder from somebody else is read without importing the code it names.
    name = module_of(own)
    sys.modules.pop(name)
    shutil.move(own, tmp_path / "elsewhere")
    folder = tmp_path / "runs/mine/waves/short/plstm/seed-1"
    (section,) = gather([tmp_path / "runs"])
    assert section.models == ["plstm", "torch-lstm"]
    assert call("inspect", folder).exit_code == 0
    assert type(load_model(tmp_path / "runs/mine/waves/short/torch-lstm/seed-1").layer).__module__.startswith("torch")
    refused = call("inspect", folder, "--sequences", 3)
    assert refused.exit_code == 2
    assert f"got '{name}:Waves'; --task {name}:Waves imports it" in " ".join(refused.output.split())
    assert name not in sys.modules
    monkeypatch.chdir(tmp_path / "elsewhere")
    driven = call("inspect", folder, "--sequences", 3, "--task", f"{name}:Waves")
    assert driven.exit_code == 0, driven.output
    assert "over 3 sequences" in driven.output
    assert call("inspect", folder, "--sequences", 3, "--task", f"{name}:Bare").exit_code == 2
    assert call("inspect", folder, "--task", f"{name}:Waves").exit_code == 2


def test_other_data_of_the_same_task_are_refused(own):
    out = own / "runs"
    assert call("run", own / "my.yaml", "--quiet", "--device", "cpu", "--out", out).exit_code == 0
    name = module_of(own)
    other = MODULE.replace("manual_seed(0)", "manual_seed(11)")  # not as long: compiled files know time and size
    (own / f"{name}.py").write_text(other)
    sys.modules.pop(name)
    refused = call("run", own / "my.yaml", "--quiet", "--device", "cpu", "--out", out)
    assert refused.exit_code == 2
    assert "expected task.data.train to be" in refused.output


@pytest.mark.parametrize(
    ("task", "sentence"),
    [
        ("nowhere_at_all:Waves", "to name a module that can be imported, got No module named 'nowhere_at_all'"),
        ("MODULE:Sines", "to be a subclass of remanence.tasks.Task, got nothing of that name"),
        ("MODULE:torch", "to be a subclass of remanence.tasks.Task, got a module"),
        ("MODULE:Bare", "to be a dataclass, whose fields are arguments, got a plain class"),
        ("MODULE:Unfinished", "to define input_size, loss, output_size, scores, source, readout, goal"),
        (":Waves", "to name a module that can be imported, got ValueError: Empty module name"),
        ("broken:Waves", "to name a module that can be imported, got ZeroDivisionError: division by zero"),
    ],
)
def test_bad_names_of_tasks_are_answered_in_one_sentence(own, task, sentence):
    (own / "broken.py").write_text("1 / 0")
    name = task.replace("MODULE", module_of(own))
    done = call("run", own / "my.yaml", "--set", f"task.name='{name}'")
    assert done.exit_code == 2
    answer = " ".join(done.output.split())
    assert answer.startswith(f"remanence: expected task.name '{name}' ")
    assert sentence in answer
    assert not (own / "runs").exists()


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("a: [", "expected YAML in .*my.yaml, got a file that cannot be read"),
        ("[1, 2]", "expected .*my.yaml to be a mapping of names to values, got"),
        ("id: plstm/copy-200", "expected id in .* to be a name of your own, got 'plstm/copy-200'"),
        ("id: ../up", "expected id in .* to be names such as mine/vowels, which become folders, got '../up'"),
        ("extends: plstm/copy-2", "expected extends in .* got 'plstm/copy-2'; did you mean 'plstm/copy-200'"),
        ("tasks: {}", "expected the configuration to have fields among .* got tasks; did you mean task"),
        (FILE.replace("MODULE:Waves", "copy"), "expected task to have fields among .* got task.steps"),
        (FILE.replace("dt_input: true", "dt_input: 3"), "expected models.torch-lstm.dt_input to be true or false"),
        (FILE.replace("dt_input: true", "gate: fast"), "expected models.torch-lstm to have fields among .* got"),
    ],
)
def test_bad_files_are_answered_in_one_sentence(own, text, sentence):
    (own / "my.yaml").write_text(text.replace("MODULE", module_of(own)))
    with pytest.raises(ValueError, match=sentence) as caught:
        find(str(own / "my.yaml"))
    assert "\n" not in str(caught.value)


def test_a_file_that_is_not_there_and_one_that_extends_an_experiment(own):
    with pytest.raises(ValueError, match=r"expected the file of an experiment, got .*no.yaml: No such file"):
        find(str(own / "no.yaml"))
    (own / "more.yaml").write_text(
        textwrap.dedent(
            """
            extends: plstm/copy-200
            task: {delay: 20}
            models: {torch-gru: {hidden_size: 16}}
            """
        )
    )
    found = find(str(own / "more.yaml"), "smoke")
    assert (found.id, found.title, found.published) == ("more", "more", {})
    assert {"plstm", "torch-gru"} <= set(found.models)
    assert found.models["torch-gru"].task.readout == "every"
    assert found.report.score == "accuracy"
