"""Mistakes in experiments with language models are reported with the field before anything is written."""

import pytest

from remanence.experiments import check, find


def test_arguments_of_what_looks_at_its_own_models_can_be_set():
    experiment = find("mts/ptb", "smoke", ["arguments.resamples=7"])
    assert experiment.arguments["resamples"] == 7
    assert experiment.arguments["reference"] == "baseline"
    with pytest.raises(ValueError, match=r"expected arguments\.resamples to be a whole number, got 'many'"):
        check(find("mts/ptb", "smoke", ["arguments.resamples=many"]))


@pytest.mark.parametrize(
    ("id", "assignments", "words"),
    [
        ("mts/ptb", ["task.corpus=nonexistent"], r"expected task\.corpus to be one of ptb, .*got 'nonexistent'"),
        ("plstm/charptb-150", ["task.corpus=nonexistent"], r"expected task\.corpus to be one of ptb"),
        ("mts/ptb", ["task.one_hot=true"], r"expected a text task with tokens .*baseline.*, got one-hot vectors"),
        (
            "plstm/copy-200",
            ["models.lstm.make=language/baseline"],
            r"expected a text task with tokens for 'language/baseline' \(models\.lstm\), got task 'copy'",
        ),
        (
            "plstm/charptb-150",
            ["model.embedding=null"],
            r"expected models\.lstm\.embedding, or task\.one_hot to be true",
        ),
        ("mts/ptb", ["model.embedding_size=-2"], r"expected models\.baseline\.embedding_size to be a positive integer"),
        ("mts/ptb", ["model.word_dropout=2"], r"expected models\.baseline\.word_dropout to be a number in \[0, 1\]"),
    ],
)
def test_a_mistake_is_named(id, assignments, words):
    with pytest.raises(ValueError, match=words):
        check(find(id, "smoke", assignments))
