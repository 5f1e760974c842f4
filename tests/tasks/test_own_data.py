"""Tasks on the user's own data: from tensors, data sets and tables, and what is refused."""

import numpy
import pytest
import torch
from torch.utils.data import Dataset, TensorDataset

from remanence.tasks import Described, GivenData, SequenceData, side_by_side

CPU = torch.device("cpu")
NAN = float("nan")


def ragged(*lengths, features=2):
    return [torch.randn(length, features) for length in lengths]


def same(one, other):
    """Whether two are bitwise equal."""
    return one.digest == other.digest


def test_a_list_of_sequences_is_the_padded_tensor_with_lengths():
    x = ragged(4, 6, 1)
    times = [torch.rand(len(part)).cumsum(0) for part in x]
    padded, when = torch.full((3, 6, 2), NAN), torch.full((3, 6), -5.0)
    for number, (part, own) in enumerate(zip(x, times, strict=True)):
        padded[number, : len(part)], when[number, : len(part)] = part, own
    found = SequenceData(x, [0, 1, 1], times=times)
    assert same(found, SequenceData(padded, torch.tensor([0, 1, 1]), times=when, lengths=[4, 6, 1]))
    assert same(found, SequenceData([part.tolist() for part in x], numpy.array([0, 1, 1]), times=times))
    assert found.batch.lengths.tolist() == [4, 6, 1]
    assert (found.batch.inputs[1:, 2] == 0).all()
    assert found.batch.dt.dtype == torch.float32


def test_dt_from_times_is_one_at_the_first_step_and_their_difference_later():
    found = SequenceData(torch.zeros(1, 4), [0.5], times=[[7.0, 7.5, 7.5, 9.0]])
    assert found.batch.dt[:, 0].tolist() == [1.0, 0.5, 0.0, 1.5]
    assert same(found, SequenceData(torch.zeros(1, 4), [0.5], dt=[1.0, 0.5, 0.0, 1.5]))


@pytest.mark.parametrize(
    ("targets", "keywords", "learned", "readout", "outputs"),
    [
        (torch.tensor([0, 2, 1]), {}, "classification", "last", 3),
        (torch.tensor([True, False, True]), {}, "classification", "last", 2),
        (torch.tensor([0, 0, 1]), {"classes": 7}, "classification", "last", 7),
        (torch.randn(3), {}, "regression", "last", 1),
        (torch.randn(3, 5), {}, "regression", "last", 5),
        (torch.randn(3, 5), {"readout": "every"}, "regression", "every", 1),
        (torch.randn(3, 5, 2), {}, "regression", "every", 2),
        (torch.randint(4, (3, 5)).clamp(max=2).fill_(3), {}, "classification", "every", 4),
        (None, {}, "next step", "every", 2),
    ],
)
def test_what_is_learned_follows_from_the_targets(targets, keywords, learned, readout, outputs):
    data = SequenceData(torch.randn(3, 5, 2), targets, **keywords)
    task = GivenData({"train": data})
    assert (data.learned, task.readout, task.output_size, task.input_size) == (learned, readout, outputs, 2)
    assert task.goal == ("accuracy" if learned == "classification" else "loss")
    assert task.higher_is_better == (learned == "classification")


def test_the_next_step_of_values_and_of_symbols():
    x = torch.randn(2, 5, 3)
    found = SequenceData(x, lengths=[5, 3], dt=torch.rand(2, 5)).batch
    assert torch.equal(found.inputs[:, 0], x[0, :-1])
    assert torch.equal(found.targets[:, 0], x[0, 1:])
    assert found.lengths.tolist() == [4, 2]
    assert found.counts[:, 1].tolist() == [True, True, False, False]
    symbols = SequenceData([[3, 1, 2], [0, 4]])
    assert symbols.symbols
    assert (symbols.input_size, symbols.output_size) == (5, 5)
    assert symbols.batch.targets[:, 0].tolist() == [1, 2]


def test_values_that_are_missing_are_masked_and_do_not_count_as_next_ones():
    x = torch.tensor([[[1.0, NAN], [2.0, 5.0], [NAN, 6.0]]])
    found = SequenceData(x, mask="nan")
    assert same(found, SequenceData(x.nan_to_num(-9), mask=~x.isnan()))
    assert found.batch.inputs[:, 0].tolist() == [[1.0, 0.0], [2.0, 5.0]]
    assert found.batch.mask[:, 0].tolist() == [[True, False], [True, True]]
    assert found.batch.counts[:, 0].tolist() == [[True, True], [False, True]]


def test_loss_and_scores_are_means_over_what_counts():
    x, y = ragged(4, 2), [torch.randn(4, 3), torch.randn(2, 3)]
    counts = [torch.tensor([True, True, False, True]), torch.tensor([True, False])]
    task = GivenData({"train": SequenceData(x, y, counts=counts)})
    batch = side_by_side([task.source("train", 1, CPU).pick(torch.tensor([1, 0]))])
    outputs = torch.randn(1, 4, 2, 3)
    errors = torch.cat([outputs[0, :2, 1] - y[0][:2], outputs[0, 3:, 1] - y[0][3:], outputs[0, :1, 0] - y[1][:1]])
    torch.testing.assert_close(task.loss(outputs, batch), errors.square().mean().unsqueeze(0))
    scores = {name: float(score.total / score.count) for name, score in task.scores(outputs, batch).items()}
    assert scores["loss"] == pytest.approx(float(errors.square().mean()), rel=1e-5)
    assert scores["absolute_error"] == pytest.approx(float(errors.abs().mean()), rel=1e-5)
    assert task.derived(scores)["rmse"] == pytest.approx(float(errors.square().mean().sqrt()), rel=1e-5)


def test_classes_of_steps_are_scored_within_their_sequence():
    task = GivenData({"train": SequenceData(ragged(3, 1), [[0, 1, 1], [1]])})
    batch = side_by_side([task.source("train", 1, CPU).pick(torch.arange(2))])
    outputs = torch.zeros(1, 3, 2, 2)
    outputs[..., 1] = 2.0  # always class 1: right in 3 of 4 steps
    accuracy = task.scores(outputs, batch)["accuracy"]
    assert (float(accuracy.total), float(accuracy.count)) == (3, 4)
    expected = torch.nn.functional.cross_entropy(torch.tensor([[0.0, 2.0]] * 4), torch.tensor([0, 1, 1, 1]))
    torch.testing.assert_close(task.loss(outputs, batch), expected.unsqueeze(0))


def test_a_batch_in_which_nothing_counts_has_no_loss_and_no_nan():
    counts = torch.tensor([[True, True], [False, False]])
    task = GivenData({"train": SequenceData(torch.randn(2, 2, 1), torch.randn(2, 2, 1), counts=counts)})
    batch = side_by_side([task.source("train", 1, CPU).pick(torch.tensor([1]))])
    assert task.loss(torch.randn(1, 2, 1, 1), batch).tolist() == [0.0]


def test_every_change_changes_the_digest():
    x, y = torch.randn(3, 4, 2), torch.tensor([0, 1, 0])
    base = SequenceData(x, y, dt=torch.ones(4)).digest
    changed = x.clone()
    changed[2, 3, 1] += 1e-6
    others = [
        SequenceData(changed, y, dt=torch.ones(4)),
        SequenceData(x, 1 - y, dt=torch.ones(4)),
        SequenceData(x, y),
        SequenceData(x, y, dt=torch.full((4,), 2.0)),
        SequenceData(x, y, dt=torch.ones(4), classes=3),
        SequenceData(x, y, dt=torch.ones(4), mask=torch.ones(3, 4, 2)),
        SequenceData(x, y, dt=torch.ones(4), lengths=[4, 4, 3]),
    ]
    assert base == SequenceData(x.clone(), y.clone(), dt=torch.ones(4)).digest
    assert len({base, *(other.digest for other in others)}) == 1 + len(others)


def test_a_split_takes_every_sequence_once_and_follows_from_its_seed():
    data = SequenceData(torch.arange(10.0).view(10, 1, 1).expand(10, 2, 1), torch.arange(10) % 2)
    rest, part = data.split(0.3, seed=4)
    assert (len(rest), len(part)) == (7, 3)
    assert sorted([*rest.batch.inputs[0, :, 0].tolist(), *part.batch.inputs[0, :, 0].tolist()]) == list(range(10))
    assert same(data.split(0.3, seed=4)[1], part)
    assert not same(data.split(0.3, seed=5)[1], part)
    assert len(data.split(0.999)[0]) == 1


class Items(Dataset):
    def __init__(self, items):
        self.items = items

    def __len__(self):
        return len(self.items)

    def __getitem__(self, number):
        return self.items[number]


def test_data_sets_of_torch():
    x, y = ragged(3, 5), [1, 0]
    expected = SequenceData(x, y)
    assert same(SequenceData.from_dataset(Items(list(zip(x, y, strict=True)))), expected)
    assert same(SequenceData.from_dataset(iter(list(zip(x, y, strict=True)))), expected)
    named = [{"inputs": one, "targets": two, "times": range(len(one))} for one, two in zip(x, y, strict=True)]
    assert same(SequenceData.from_dataset(Items(named)), SequenceData(x, y, dt=[[1.0] * 3, [1.0] * 5]))
    whole = torch.randn(4, 3, 2)
    assert same(SequenceData.from_dataset(TensorDataset(whole, torch.arange(4))), SequenceData(whole, torch.arange(4)))
    assert same(SequenceData.from_dataset(Items(x)), SequenceData(x))


def test_tables_in_which_a_row_is_a_sequence_or_a_step():
    rows = {"warm": [[1.0, None], [3.0, 4.0, 5.0]], "wet": [[1.0, 2.0], [0.0, 0.0, 1.0]], "kind": [0, 1]}
    by_row = SequenceData.from_table(rows, ["warm", "wet"], "kind", mask="nan")
    x = [torch.tensor([[1.0, 1.0], [NAN, 2.0]]), torch.tensor([[3.0, 0.0], [4.0, 0.0], [5.0, 1.0]])]
    assert same(by_row, SequenceData(x, [0, 1], mask="nan"))
    steps = {
        "who": ["a", "b", "a", "b", "b"],
        "when": [0.0, 1.0, 2.0, 3.0, 5.0],
        "warm": [1.0, 3.0, None, 4.0, 5.0],
        "wet": [1.0, 0.0, 2.0, 0.0, 1.0],
        "kind": [0, 1, 0, 1, 1],
    }
    keywords = {"sequence": "who", "times": "when", "mask": "nan"}
    found = SequenceData.from_table(steps, ["warm", "wet"], "kind", readout="last", **keywords)
    assert same(found, SequenceData(x, [0, 1], times=[[0.0, 2.0], [1.0, 3.0, 5.0]], mask="nan"))
    every = SequenceData.from_table(steps, ["warm", "wet"], "kind", **keywords)
    assert same(every, SequenceData(x, [[0, 0], [1, 1, 1]], times=[[0.0, 2.0], [1.0, 3.0, 5.0]], mask="nan"))
    one = SequenceData.from_table({"wet": rows["wet"], "next": [0.5, 0.25]}, "wet", "next")
    assert same(one, SequenceData(rows["wet"], [0.5, 0.25]))


@pytest.mark.parametrize("formatted", [False, True])
def test_tables_of_hugging_face(formatted):
    datasets = pytest.importorskip("datasets", reason="datasets is not installed")
    rows = {"warm": [[1.0, 2.0], [3.0, 4.0, 5.0]], "wet": [[1.0, 2.0], [0.0, 0.0, 1.0]], "kind": [0, 1]}
    table = datasets.Dataset.from_dict(rows)
    table = table.with_format("torch") if formatted else table
    expected = SequenceData.from_table(rows, ["warm", "wet"], "kind")
    assert same(SequenceData.from_table(table, ["warm", "wet"], "kind"), expected)
    steps = datasets.Dataset.from_dict({"who": ["a", "b", "a"], "warm": [1.0, 2.0, None], "kind": [0, 1, 0]})
    found = SequenceData.from_table(steps, "warm", "kind", sequence="who", mask="nan", readout="last")
    assert same(found, SequenceData([[1.0, NAN], [2.0]], [0, 1], mask="nan"))


def test_tables_of_pandas():
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    steps = {"who": [2, 1, 2], "warm": [1.0, 2.0, NAN], "kind": [0, 1, 0]}
    keywords = {"sequence": "who", "mask": "nan", "readout": "last"}
    expected = SequenceData.from_table(steps, ["warm"], "kind", **keywords)
    assert same(SequenceData.from_table(pandas.DataFrame(steps), ["warm"], "kind", **keywords), expected)


X = torch.zeros(2, 3, 2)


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (
            lambda: SequenceData(X.clone().index_fill_(1, torch.tensor([1]), NAN), [0, 1]),
            "expected finite inputs, got nan in sequence 0 at step 1, feature 0; use mask='nan' if NaN marks missing "
            "values",
        ),
        (lambda: SequenceData(X - float("inf"), [0, 1], mask="nan"), "expected finite inputs, got -inf in sequence 0"),
        (lambda: SequenceData(X, [0.5, NAN]), "expected finite targets, got nan in sequence 1"),
        (lambda: SequenceData(X, torch.full((2, 3, 1), NAN)), "at step 0; exclude steps with counts="),
        (lambda: SequenceData(X, [0, -1]), "expected classes of 0 or more, got -1"),
        (
            lambda: SequenceData(X, [0, 3], classes=3),
            "expected classes to be at least 4, since the largest is 3, got 3",
        ),
        (lambda: SequenceData(X, [0.0, 3.0], classes=3), "expected classes only with integer targets, got classes=3"),
        (lambda: SequenceData(X, [0, 1, 1]), r"expected targets of shape \(2,\) for readout 'last', got \(3,\)"),
        (
            lambda: SequenceData(X, torch.zeros(2, 4), readout="every"),
            r"expected targets of shape \(2, 3\) or \(2, 3, O\) for readout 'every', got \(2, 4\)",
        ),
        (
            lambda: SequenceData([X[0], X[1, :2]], [[0, 1], [1, 1, 1]]),
            "expected a target for each of the 3 steps of sequence 0, got 2",
        ),
        (lambda: SequenceData(X, [0, 1], counts=torch.ones(2, 3)), "expected counts only with one target per step"),
        (
            lambda: SequenceData(X, torch.zeros(2, 3, 1), counts=torch.zeros(2, 3)),
            "expected at least one step that counts",
        ),
        (lambda: SequenceData(X, readout="last"), "expected targets with readout='last' or counts, got none"),
        (lambda: SequenceData(X, [0, 1], readout="first"), "expected readout to be 'every' or 'last', got 'first'"),
        (lambda: SequenceData(X, [0, 1], lengths=[3, 4]), "expected lengths from 1 to 3"),
        (lambda: SequenceData(list(X), [0, 1], lengths=[3, 3]), "expected no lengths with a list of sequences"),
        (lambda: SequenceData(X, [0, 1], dt=torch.ones(3), times=torch.ones(3)), "expected dt or times, got both"),
        (lambda: SequenceData(X, [0, 1], times=[3.0, 2.0, 1.0]), "expected times that do not decrease"),
        (lambda: SequenceData(X, [0, 1], dt=[1.0, -1.0, 1.0]), "expected dt to be finite and not negative"),
        (lambda: SequenceData(X, [0, 1], times=[1.0, NAN, 2.0]), "expected dt to be finite and not negative"),
        (lambda: SequenceData(X, [0, 1], dt=torch.ones(2, 2)), r"expected dt for every step .* got \(2, 2\)"),
        (lambda: SequenceData(X, [0, 1], mask="NaN"), "expected mask to be booleans or 'nan', got 'NaN'"),
        (lambda: SequenceData(X, [0, 1], mask=torch.ones(2, 3)), r"the shape of the inputs, \(2, 3, 2\), got \(2, 3\)"),
        (lambda: SequenceData([[1, 2], [3, 4]], mask="nan"), "expected no mask for inputs that are symbols"),
        (lambda: SequenceData([[1, -2], [3, 4]]), "expected symbols of 0 or more, got -2"),
        (lambda: SequenceData(torch.zeros(2, 3, 2, dtype=torch.long)), r"expected inputs \(N, T, I\) of a floating"),
        (lambda: SequenceData(torch.zeros(3)), r"expected inputs of shape \(N, T, I\) or \(N, T\), got \(3,\)"),
        (lambda: SequenceData([]), "expected inputs of at least one sequence, got none"),
        (lambda: SequenceData("words"), "expected inputs to be a tensor, an array or a list of them, got str"),
        (lambda: SequenceData([["a", "b"]]), r"expected inputs to hold numbers, got \['a', 'b'\]"),
        (
            lambda: SequenceData([torch.zeros(2, 2), torch.zeros(2, 3)]),
            r"and all the same width, got shapes \(2, 2\)",
        ),
        (lambda: SequenceData(torch.zeros(2, 1, 2)), "expected sequences of at least two steps to predict the next"),
        (lambda: SequenceData(X, [0, 1]).split(1.0), "expected the fraction of a split to be above 0 and below 1"),
        (lambda: SequenceData(X, [0, 1])[:1].split(0.5), "expected at least two sequences to split, got one"),
        (lambda: SequenceData.from_dataset([]), "expected a data set of at least one sequence, got an empty one"),
        (lambda: SequenceData.from_dataset(3), "expected a data set with items, got int"),
        (lambda: SequenceData.from_dataset([{"input": X[0]}]), "expected items with inputs, and optionally targets"),
        (lambda: SequenceData.from_dataset([(1, 2, 3)]), r"an \(input, target\) pair or a mapping, got tuple"),
        (
            lambda: SequenceData.from_dataset([{"inputs": X[0], "targets": 1}, {"inputs": X[1]}]),
            "expected targets in every item or in none, got it in 1 of 2",
        ),
        (lambda: SequenceData.from_table({"a": [[1.0]]}, "b"), "expected a column out of a, got 'b'"),
        (
            lambda: GivenData({"test": SequenceData(X)}).splits,
            "expected sequences for train, and optionally validation",
        ),
        (lambda: GivenData({"train": X}).splits, "expected SequenceData for train, got Tensor"),
        (
            lambda: GivenData({"train": SequenceData(X), "test": SequenceData(X, [0, 1])}).splits,
            "expected test to have learned='next step' like train, got 'classification'",
        ),
        (
            lambda: GivenData({"train": SequenceData(X), "test": SequenceData(X[..., :1])}).splits,
            r"expected test to have the input and output sizes of train, \(2, 2\), got \(1, 1\)",
        ),
        (lambda: Described("a:B", {}), "expected the interface of task 'a:B' to have input_size, output_size, readout"),
    ],
)
def test_invalid_data_is_refused_in_one_sentence(call, sentence):
    with pytest.raises((TypeError, ValueError), match=sentence) as caught:
        call()
    assert "\n" not in str(caught.value)
