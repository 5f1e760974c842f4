"""Tasks by name, and their errors for wrong arguments."""

import dataclasses
import inspect

import pytest

from remanence import tasks

WRONG = [
    ("copy", {"delay": 0}, "delay"),
    ("copy", {"delay": "long"}, "delay"),
    ("copy", {"delay": True}, "delay"),
    ("copy", {"symbols": 0}, "symbols"),
    ("copy", {"length": -1}, "length"),
    ("copy", {"form": "arjovski"}, "form"),
    ("copy", {"form": None}, "form"),
    ("copy", {"train_size": 0}, "train_size"),
    ("copy", {"validation_size": None}, "validation_size"),
    ("copy", {"test_size": -1}, "test_size"),
    ("copy-variable", {"shortest": 0}, "shortest"),
    ("copy-variable", {"shortest": 10, "longest": 9}, "longest"),
    ("copy-variable", {"form": "cue"}, "form"),
    ("adding", {"length": 1}, "length"),
    ("adding", {"train_size": 1.5}, "train_size"),
    ("pixels", {"data": "cifar"}, "data"),
    ("pixels", {"permuted": "yes"}, "permuted"),
    ("pixels", {"permutation_seed": -1}, "permutation_seed"),
    ("pixels", {"permutation_seed": 2**32}, "permutation_seed"),
    ("pixels", {"validation_size": 60_000}, "validation_size"),
    ("pixels", {"train_size": 50_001}, "train_size"),
    ("pixels", {"data": "digits", "test_size": 598}, "test_size"),
    ("imdb", {"length": 0}, "length"),
    ("imdb", {"vocabulary": 70_000}, "vocabulary"),
    ("imdb", {"validation_size": None}, "validation_size"),
    ("imdb", {"test_size": 0}, "test_size"),
    ("frequency", {"sampling": "sync"}, "sampling"),
    ("frequency", {"time_input": 1}, "time_input"),
    ("frequency", {"time_scale": 0}, "time_scale"),
    ("frequency", {"time_scale": "100"}, "time_scale"),
    ("frequency", {"periods": "log"}, "periods"),
    ("dyck2", {"longest": 18}, "longest"),
    ("dyck2", {"longest": 51}, "longest"),
    ("dyck2", {"train_size": None}, "train_size"),
    ("dyck2", {"train_size": 100_000}, "train_size"),
    ("dyck2", {"validation_size": 0}, "validation_size"),
    ("dyck2", {"test_size": -1}, "test_size"),
    ("dyck2", {"data_seed": 0.5}, "data_seed"),
]


@pytest.mark.parametrize(("name", "arguments", "field"), WRONG)
def test_the_error_for_a_wrong_argument_names_it(name, arguments, field):
    with pytest.raises(ValueError, match=f"^expected {field} to be [^\n]*, got [^\n]*$"):
        tasks.make(name, **arguments)


@pytest.mark.parametrize("name", ["copy", "copy-variable", "adding", "pixels", "imdb", "frequency", "dyck2"])
def test_every_task_has_defaults_and_plain_fields(name):
    task = tasks.make(name)
    assert task.name == name
    assert type(task) is tasks.KNOWN[name]
    assert tasks.make(name, **dataclasses.asdict(task)) == task
    assert task.goal in task.references
    assert task.input_size >= 1
    assert task.output_size >= 1
    assert inspect.getdoc(type(task))


def test_known_lists_every_task():
    classes = {
        *(tasks.Copy, tasks.CopyVariable, tasks.Adding, tasks.Pixels, tasks.IMDB, tasks.Frequency, tasks.Dyck2),
        *(tasks.Text, tasks.NextWord),
    }
    assert set(tasks.KNOWN.values()) == classes
    assert {name: kind.name for name, kind in tasks.KNOWN.items()} == {name: name for name in tasks.KNOWN}


def test_unknown_name():
    with pytest.raises(ValueError, match=r"expected task to be one of copy, .*, got 'coppy'; did you mean 'copy'\?"):
        tasks.make("coppy")


def test_unknown_argument():
    with pytest.raises(ValueError, match=r"expected argument of task 'copy' to be one of delay, .*, got 'dealy'; did"):
        tasks.make("copy", dealy=3)


def test_announced_names_exist():
    assert [name for name in tasks.__all__ if not hasattr(tasks, name)] == []
