"""The race: standings, texts, display, and processes that stop without loss."""

import io
import math
import os
import signal
import subprocess
import sys
from dataclasses import replace
from multiprocessing import Pipe

import pytest
import torch
from rich.console import Console

from remanence.experiments import find, plan
from remanence.experiments.demo import Demo, conclusion, introduction, outcome, table
from remanence.experiments.demo.display import Board
from remanence.experiments.demo.outcome import draw
from remanence.experiments.demo.race import Messenger, race, work
from remanence.experiments.demo.standing import read
from remanence.experiments.models import count_parameters
from remanence.training import Silent

GUESS = 1 / 6


def line(update, loss):
    return {"update": update, "validation": {"loss": loss}}


@pytest.fixture
def demo(tmp_path):
    return Demo.of(tmp_path, quick=True)


@pytest.fixture
def told(demo):
    """The demo, with some evaluations."""
    for name, losses in {"lstm": (0.17, 0.16), "fast": (0.1, 0.009), "plstm": (0.01, 0.005)}.items():
        for seed, loss in zip((1, 2), losses, strict=True):
            demo.standings[name].add(seed, line(5, GUESS))
            demo.standings[name].add(seed, line(10, loss))
            demo.standings[name].ended.add(seed)
    return demo


def test_parameters_of_all_models_agree_within_one_percent():
    counts = [count_parameters(model) for model in find("own/demo", "short").models.values()]
    assert outcome.spread(counts) < 0.01


def test_the_lstm_and_the_fast_gate_start_at_the_same_forget_value():
    models = find("own/demo", "short").models
    assert models["lstm"].layer["forget_bias"] == 1
    assert "forget_bias" not in models["fast"].layer  # its own is matched to that


def test_models_differ_in_nothing_but_gate_and_size():
    models = list(find("own/demo", "short").models.values())
    assert len({model.task for model in models}) == 1
    assert all(model.training == models[0].training for model in models)


def test_a_standing_knows_how_much_is_learned(demo):
    standing = demo.standings["plstm"]
    assert (standing.learned, standing.error) == (0, pytest.approx(math.sqrt(GUESS)))
    standing.add(1, line(5, 0.2))
    assert standing.learned == 0  # worse than guessing
    standing.add(2, line(5, 0.0))
    assert standing.learned == pytest.approx(0.5)
    assert standing.error == pytest.approx(math.sqrt(0.1))
    standing.add(1, line(10, None))  # not finite
    assert (standing.update, len(standing.curves[1])) == (10, 1)


def test_a_standing_knows_when_it_was_solved(told):
    assert [one.solved for one in told.standings.values()] == [{}, {2: 10}, {1: 10, 2: 10}]


def test_half_a_line_of_metrics_is_left_out(demo):
    run = demo.groups["lstm"][0]
    run.directory.mkdir(parents=True)
    (run.directory / "metrics.jsonl").write_text('{"update": 5, "validation": {"loss": 0.1}}\n{"update": 10, "val')
    assert read(demo.experiment, demo.groups["lstm"]).curves[1] == [(5, 0.1)]


def test_the_introduction_says_what_the_task_is(demo):
    words = " ".join(introduction(demo.experiment, list(demo.standings.values())))
    for part in ("10 random numbers", "off by 0.41", "solved at 0.10", "seeds 1 and 2", "27% before", "pLSTM (411"):
        assert part in words


def test_table_and_conclusion_say_what_came_out(told):
    rows = table(told.standings, told.groups).rows
    assert [row[:5] for row in rows] == [
        ("LSTM", "393", "0 of 2", ">10, >10", "0.41, 0.40"),
        ("fast-gate LSTM", "393", "1 of 2", ">10, 10", "0.32, 0.09"),
        ("pLSTM", "411", "2 of 2", "10, 10", "0.10, 0.07"),
    ]
    assert conclusion(list(told.standings.values())) == [
        "LSTM was still off by 0.41 after 10 updates; fast-gate LSTM solved it with 1 of 2 seeds; "
        "pLSTM solved it after 10 and 10 updates."
    ]


def test_the_picture_is_drawn_from_the_standings(told, tmp_path):
    pytest.importorskip("matplotlib")
    draw(list(told.standings.values()), "title", tmp_path / "picture.png")
    assert (tmp_path / "picture.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("width", [80, 120])
def test_the_board_has_a_line_for_every_model(told, width):
    told.standings["lstm"].ended.clear()
    board = Board(told.standings, 1400)
    board.console = Console(file=io.StringIO(), width=width, force_terminal=True, color_system=None)
    board.console.print(board.render())
    lines = board.console.file.getvalue().splitlines()
    assert len(lines) == 4
    assert "update 10 of 1,400" in lines[1]
    assert "not solved after 10" in lines[2]
    assert "solved after 10, 10" in lines[3]


def test_resuming_drops_evaluations_after_the_checkpoint(told, capsys):
    board = Board(told.standings, 10)
    board.lanes["lstm"].begin(told.groups["lstm"], 5, 10)
    assert told.standings["lstm"].curves == {1: [(5, GUESS)], 2: [(5, GUESS)]}
    assert capsys.readouterr().err == "LSTM: resumes at update 5\n"


# Processes.

LONG = """
import sys
from pathlib import Path

from remanence.experiments import find, plan
from remanence.experiments.demo.race import race
from remanence.training import Silent, Stopped


class Lane(Silent):
    def begin(self, runs, update, total):
        print("begins at", update, flush=True)

    def evaluated(self, run, line):
        print("evaluated", flush=True)


if __name__ == "__main__":
    groups = plan(find("own/demo", "smoke", ["training.epochs=1000000"]), Path(sys.argv[1]), ["plstm"])
    try:
        race(groups, {"plstm": Lane()})
    except Stopped as stopped:
        print(stopped.reason)
        sys.exit(stopped.code)
"""


@pytest.mark.long
@pytest.mark.skipif(os.name != "posix", reason="signals")
@pytest.mark.slow
def test_a_signal_stops_the_race_and_loses_nothing(tmp_path):
    number = signal.SIGINT
    script = tmp_path / "long.py"
    script.write_text(LONG)
    with subprocess.Popen([sys.executable, script, tmp_path], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "begins at 0\n"
        assert process.stdout.readline() == "evaluated\n"
        process.send_signal(number)
        rest = process.stdout.read()
        assert process.wait() == 128 + number
    assert rest.endswith(f"stopped by {number.name}; run the same command again to resume\n")
    folder = tmp_path / "own" / "demo" / "smoke" / "plstm" / "seed-1"
    assert list((folder / "checkpoints").glob("*.safetensors"))
    assert not (folder / "result.json").exists()


def test_a_refused_run_is_reported_in_one_sentence(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "setsid", lambda: None, raising=False)
    (tmp_path / "file").write_text("")
    ours, theirs = Pipe(duplex=False)
    threads = torch.get_num_threads()
    try:
        work(plan(find("own/demo", "smoke"), tmp_path / "file", ["lstm"])["lstm"], theirs)
    finally:
        torch.set_num_threads(threads)
    with ours:
        kind, (sentence,) = ours.recv()
    assert kind == "refused"
    assert sentence.startswith("expected to write ")


def test_a_messenger_without_a_listener_asks_to_stop(monkeypatch):
    asked = []
    monkeypatch.setattr(signal, "raise_signal", asked.append)
    ours, theirs = Pipe(duplex=False)
    ours.close()
    with theirs:
        Messenger(theirs.send).step(1, 0.5)
    assert asked == [signal.SIGTERM]


def test_a_failed_process_raises(tmp_path):
    groups = plan(find("own/demo", "smoke"), tmp_path, ["lstm"])
    broken = [replace(run, make_model=broken_model) for run in groups["lstm"]]
    with pytest.raises(RuntimeError, match="expected the process that trains lstm to end with 0, got 1"):
        race({"lstm": broken}, {"lstm": Silent()})


def broken_model():
    raise OSError("broken")
