"""`rm.fit`: training on your own data as a run like any other."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch
import yaml

import remanence as rm
from remanence import gates, tasks, timescales, training
from remanence.experiments import load_model
from remanence.experiments.checkpoints import open_checkpoint
from remanence.experiments.from_code import layer_described
from remanence.experiments.models import build_model, from_description
from remanence.experiments.sections import gather
from remanence.models import SequenceModel
from remanence.tasks import GivenData, SequenceData
from remanence.training.config import plain

MADE_ANEW = {"machine.json", "times.jsonl", "SHA256SUMS"}
SHORT = {"epochs": 2, "batch": 8, "lr": 0.01}


def signs(count=40, steps=6, seed=0, **keywords):
    """Whether the first value of a sequence is positive: easy, and needs memory."""
    x = torch.randn(count, steps, 2, generator=torch.Generator().manual_seed(seed))
    return SequenceData(x, (x[:, 0, 0] > 0).long(), **keywords)


def plstm():
    return rm.PowerLawLSTM(2, 6)


def content(folder):
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name not in MADE_ANEW
    }


@pytest.mark.long
def test_a_model_learns_and_comes_back_with_what_is_known_of_it(tmp_path):
    fitted = rm.fit(
        plstm,
        signs(200),
        "signs/plstm",
        out=tmp_path,
        test=0.1,
        epochs=40,
        batch=20,
        lr=0.02,
        reached={"accuracy": 1.0},
    )
    assert fitted.folder == tmp_path / "signs" / "fit" / "plstm" / "seed-1"
    assert fitted.result["status"] == "converged"
    assert fitted.scores["accuracy"] > 0.8
    assert fitted.history[-1]["validation"]["accuracy"] == 1.0
    assert fitted.history[0]["train"]["loss"] > fitted.history[-1]["train"]["loss"]
    x = signs(30, seed=5)
    outputs, _ = fitted.model(x.batch.inputs)
    assert (outputs.argmax(-1) == x.batch.targets).float().mean() > 0.8
    assert not fitted.model.training


def test_immediate_divergence_raises_one_sentence(tmp_path):
    with pytest.raises(ValueError, match=r"^expected a finite loss .* at update \d+ of signs plstm"):
        rm.fit(plstm, signs(), "signs/plstm", out=tmp_path, epochs=1, batch=4, lr=1e30)


def test_fractions_are_of_all_sequences_and_the_same_for_every_seed(tmp_path):
    folders = [
        rm.fit(plstm, signs(50), "signs/plstm", out=tmp_path, validation=0.2, test=0.2, seed=seed, **SHORT).folder
        for seed in (1, 2)
    ]
    first, second = (yaml.safe_load((folder / "config.yaml").read_text())["task"]["data"] for folder in folders)
    assert first == second
    rest, test = signs(50).split(0.2)
    train, validation = rest.split(0.25)
    assert first == {"train": train.digest, "validation": validation.digest, "test": test.digest}
    assert (len(train), len(validation), len(test)) == (30, 10, 10)


def test_the_same_call_returns_the_result_without_training(tmp_path):
    first = rm.fit(plstm, signs(), "signs/plstm", out=tmp_path, **SHORT)
    files = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.safetensors")}
    again = rm.fit(plstm, signs(), "signs/plstm", out=tmp_path, **SHORT)
    assert again.result == first.result
    assert again.history == first.history
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.safetensors")} == files
    for one, other in zip(first.model.parameters(), again.model.parameters(), strict=True):
        assert torch.equal(one, other)


def test_an_interrupted_fit_resumes_bit_exactly(tmp_path):
    whole = rm.fit(plstm, signs(), "signs/plstm", out=tmp_path / "whole", checkpoint_every=2, **SHORT)

    class Impatient(training.Silent):
        def wants_loss(self):
            return True

        def step(self, update, loss=None):
            if update == 3:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        rm.fit(plstm, signs(), "signs/plstm", out=tmp_path / "cut", progress=Impatient(), checkpoint_every=2, **SHORT)
    assert not (tmp_path / "cut" / "signs/fit/plstm/seed-1" / "result.json").exists()
    rm.fit(plstm, signs(), "signs/plstm", out=tmp_path / "cut", checkpoint_every=2, **SHORT)
    assert content(tmp_path / "cut") == content(tmp_path / "whole")
    assert whole.result["updates"] == 8


KILLED = """
import os, sys
sys.path.insert(0, {here!r})
from test_fitting import SHORT, plstm, signs
import remanence as rm
from remanence.training import Silent
class Dying(Silent):
    def wants_loss(self):
        return True
    def step(self, update, loss=None):
        if update == {update}:
            os.kill(os.getpid(), 9)
rm.fit({model}, signs(), "signs/model", out={out!r}, progress=Dying(), checkpoint_every=2, **SHORT)
"""


@pytest.mark.long
@pytest.mark.parametrize(
    "model",
    ["plstm", pytest.param("lambda: __import__('torch').nn.LSTM(2, 6)", marks=pytest.mark.slow)],
    ids=["ours", "torch"],
)
def test_killed_in_the_middle_it_leaves_the_same_files(tmp_path, model):
    out = tmp_path / "killed"
    for update in (3, 7):
        script = KILLED.format(here=str(Path(__file__).parent), update=update, model=model, out=str(out))
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
        assert done.returncode == -9, done.stderr
    make = eval(model)
    rm.fit(make, signs(), "signs/model", out=out, checkpoint_every=2, **SHORT)
    rm.fit(make, signs(), "signs/model", out=tmp_path / "whole", checkpoint_every=2, **SHORT)
    assert content(out) == content(tmp_path / "whole")


def test_other_data_are_refused_in_one_sentence(tmp_path):
    rm.fit(plstm, signs(), "signs/plstm", out=tmp_path, **SHORT)
    with pytest.raises(ValueError, match=r"^expected task.data.train to be '[0-9a-f]{64}' as in .*, got '") as caught:
        rm.fit(plstm, signs(seed=1), "signs/plstm", out=tmp_path, **SHORT)
    assert "\n" not in str(caught.value)
    with pytest.raises(ValueError, match=r"^expected training.optimiser.lr to be 0.01 as in .*, got 0.02"):
        rm.fit(plstm, signs(), "signs/plstm", out=tmp_path, **{**SHORT, "lr": 0.02})


def test_a_given_model_is_copied_and_training_starts_from_its_weights(tmp_path):
    given = plstm()
    before = {name: weight.clone() for name, weight in given.state_dict().items()}
    rm.fit(given, signs(), "signs/plstm", out=tmp_path, **SHORT)
    assert all(torch.equal(weight, before[name]) for name, weight in given.state_dict().items())
    rm.fit(given, signs(), "signs/plstm", out=tmp_path, **SHORT)
    with pytest.raises(ValueError, match=r"expected the initial weights of the run in .*, got different ones"):
        rm.fit(plstm(), signs(), "signs/plstm", out=tmp_path, **SHORT)


def test_seeds_make_other_weights_and_leave_torchs_generator_alone(tmp_path):
    torch.manual_seed(7)
    state = torch.get_rng_state()
    one, two = (rm.fit(plstm, signs(), "signs/plstm", out=tmp_path, seed=seed, **SHORT).model for seed in (1, 2))
    assert torch.equal(torch.get_rng_state(), state)
    assert not torch.equal(one.head.weight, two.head.weight)


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.nn.LSTM(2, 5),
        lambda: torch.nn.GRU(2, 5, batch_first=True),
        lambda: rm.GRU(2, 5, batch_first=True, gate="fast"),
        lambda: SequenceModel(
            rm.PhasedLSTM(5, 4), 2, readout="last", missing="forward", mask_input=True, dt_input=True
        ),
    ],
)
def test_any_layer_learns_from_masked_sequences_of_any_length_and_is_opened_again(tmp_path, make):
    made = make()
    hard = isinstance(made, SequenceModel)
    x = torch.randn(20, 6, 2)
    keywords = {"lengths": torch.randint(1, 7, (20,)), "times": torch.rand(20, 6).cumsum(1)}
    if hard:
        keywords["mask"] = torch.rand(20, 6, 2) < 0.7
    fitted = rm.fit(make, SequenceData(x, torch.arange(20) % 2, **keywords), "a/b", out=tmp_path, epochs=1, batch=8)
    opened = open_checkpoint(fitted.folder).model
    assert str(opened) == str(fitted.model)
    batch = SequenceData(x, torch.arange(20) % 2, **keywords).batch
    given = batch.inputs.transpose(0, 1) if opened.batch_first else batch.inputs
    own = {"dt": batch.dt, "mask": batch.mask} if hard else {}
    torch.testing.assert_close(opened(given, batch.lengths, **own), fitted.model(given, batch.lengths, **own))
    assert load_model(fitted.folder).readout == "last"


LAYERS = {
    "lstm": lambda: rm.LSTM(2, 4),
    "many words": lambda: rm.LSTM(2, 4, 2, False, True, 0.1, True, 2, gate="refine", weight_drop=0.2, recompute=2),
    "coupled": lambda: rm.LSTM(2, 4, gate="fast", input_gate="coupled", forget_bias=2.0),
    "power law": lambda: rm.PowerLawLSTM(2, 4, p=0.3, eps=1e-5, input_gate="separate"),
    "power law gate": lambda: rm.GRU(2, 4, gate=gates.PowerLaw(p=0.2)),
    "timescales": lambda: rm.LSTM(2, 4, 2, timescales=timescales.Chrono(30.0)),
    "frozen": lambda: rm.LSTM(2, 4, 2, timescales=[timescales.Fixed([3.0, 4.0, 5.0, 6.0], freeze=True), None]),
    "janet": lambda: rm.JANET(2, 4, beta=0.5),
    "nru": lambda: rm.NRU(2, 8, heads=2),
    "phased": lambda: rm.PhasedLSTM(2, 4, leak=0.01, gate="softsign"),
    "orthogonal": lambda: rm.ExpRNN(2, 4, start_angles="henaff"),
    "rotations": lambda: rm.EURNN(2, 8, fft=True),
    "gated rotations": lambda: rm.GORU(2, 4, capacity=4, gate="fast"),
    "statistics": lambda: rm.SRU(2, 4, summary=3, averages=(0.0, 0.5)),
    "reset age": lambda: rm.PowerLawLSTM(2, 4, reset_age=1e-3),
    "torch": lambda: torch.nn.LSTM(2, 4, 2, dropout=0.1),
    "torch's GRU": lambda: torch.nn.GRU(2, 4, bidirectional=True),
}


@pytest.mark.parametrize("make", LAYERS.values(), ids=LAYERS)
def test_the_configuration_makes_the_same_model_again(make):
    task = GivenData({"train": signs()})
    model = SequenceModel(make(), 2, readout="last", dropout=0.25)
    layer = layer_described(model, task, "m")
    assert layer["make"] != "code", layer
    layer = yaml.safe_load(yaml.safe_dump(plain(layer)))
    described = {"model": "m", "layer": layer, "training": {}, "task": {"name": "own data"}}
    described["interface"] = tasks.own.described.interface(task)
    again = build_model(from_description(described))
    assert str(again) == str(model)
    again.load_state_dict(model.state_dict())
    x = torch.randn(3, 5, 2)
    given = x if model.batch_first else x.transpose(0, 1)
    torch.testing.assert_close(again.eval()(given)[0], model.eval()(given)[0])


class Halves(gates.Gate):
    """Always a half."""

    name = "halves"

    def __call__(self, pre, carried, weights, dt):
        half = torch.sigmoid(pre[0] * 0.1)
        return gates.Forgetting(half, 1 - half)


def test_a_user_defined_gate_trains_but_its_configuration_is_not_rebuildable(tmp_path):
    fitted = rm.fit(lambda: rm.LSTM(2, 4, gate=Halves()), signs(), "a/halves", out=tmp_path, **SHORT)
    assert fitted.result["status"] == "finished"
    with pytest.raises(ValueError, match="expected a model that its configuration describes fully, got 'halves'"):
        open_checkpoint(fitted.folder)
    (section,) = gather([tmp_path])
    assert section.models == ["halves"]


def test_models_of_one_experiment_are_in_one_section_of_a_report(tmp_path):
    for name, make in (("plstm", plstm), ("torch", lambda: torch.nn.LSTM(2, 6))):
        rm.fit(make, signs(), f"signs/{name}", out=tmp_path, **SHORT)
    (section,) = gather([tmp_path])
    assert (section.id, section.models, section.done, section.planned) == ("signs", ["plstm", "torch"], 2, 2)
    assert [row[0] for row in section.tables[0].rows] == ["plstm", "torch"]
    assert section.figures
    assert not section.notes
    assert not section.commands


def test_a_task_of_the_package_is_taken_as_it_is(tmp_path):
    task = tasks.make("copy", delay=3, symbols=3, length=1, train_size=16, validation_size=8)
    fitted = rm.fit(lambda: rm.LSTM(task.input_size, 5), task, "mine/copy", out=tmp_path, epochs=1, batch=8)
    assert open_checkpoint(fitted.folder).task() == task


@pytest.mark.long
def test_symbols_are_embedded_and_the_next_one_is_told(tmp_path):
    data = SequenceData(torch.arange(12).remainder(3).expand(10, 12) + torch.arange(10).view(-1, 1) % 2)
    fitted = rm.fit(lambda: rm.LSTM(4, 8), data, "a/symbols", out=tmp_path, epochs=40, batch=8, lr=0.05)
    assert fitted.scores["accuracy"] > 0.9
    assert open_checkpoint(fitted.folder).model.embedding.num_embeddings == 4


@pytest.mark.parametrize(
    ("keywords", "sentence"),
    [
        ({"name": "signs"}, "expected a name such as 'vowels/plstm'"),
        ({"name": "../x/y"}, "expected a name such as 'vowels/plstm'"),
        ({"name": "plstm/copy-200/x"}, "expected a name of your own, got 'plstm/copy-200/x'"),
        ({"epoch": 3}, "expected training to have fields among .* got training.epoch; did you mean training.epochs"),
        ({"lr": "fast"}, "expected training.optimiser.lr to be a number, got 'fast'"),
        ({"batch": 500}, "expected training.batch to be at most the 32 training sequences, got 500"),
        ({"validation": 1.5}, "expected the fraction of a split to be above 0 and below 1, got 1.5"),
        ({"data": torch.zeros(3)}, "expected data to be SequenceData or a task, got Tensor"),
        ({"data": tasks.make("copy"), "test": 0.1}, "expected no validation and test arguments with a task"),
        ({"model": lambda: rm.LSTM(3, 4)}, "expected a model with inputs 2 to match the data, got 3"),
        ({"model": SequenceModel(rm.LSTM(2, 4), 2)}, "expected a model with readout 'last' to match the data, got 'ev"),
        (
            {"model": SequenceModel(rm.LSTM(2, 4), 5, readout="last")},
            "expected a model with outputs 2 to match the data",
        ),
        ({"model": torch.nn.Linear(2, 2)}, "expected a recurrent layer of remanence, a torch.nn.LSTM or a torch"),
        ({"data": signs(mask="nan")}, "expected a SequenceModel with missing='zero' or missing='forward' for data"),
        ({"budget": "soon"}, "expected a budget such as 90s"),
    ],
)
def test_wrong_arguments_are_refused_in_one_sentence_and_nothing_is_written(tmp_path, keywords, sentence):
    given = {"model": plstm, "data": signs(), "name": "signs/plstm", "epochs": 1} | keywords
    with pytest.raises((TypeError, ValueError), match=sentence) as caught:
        rm.fit(out=tmp_path, **given)
    assert "\n" not in str(caught.value)
    assert not list(tmp_path.rglob("result.json"))


@pytest.mark.long
def test_fit_is_a_name_of_the_package_that_costs_nothing_until_it_is_used():
    script = "import sys, remanence; assert 'remanence.experiments' not in sys.modules; assert callable(remanence.fit)"
    subprocess.run([sys.executable, "-c", script], check=True)
    with pytest.raises(AttributeError, match="has no attribute 'fitt'"):
        rm.fitt  # noqa: B018
