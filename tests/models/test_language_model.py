"""The language model against an independent computation, and parts of its training that published code got wrong."""

import math
from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn.functional import cross_entropy, dropout

import remanence as rm
from remanence.models import LanguageModel, language_model

WORDS = 13
SIZES = {"embedding_size": 6, "hidden_size": 8, "num_layers": 3}
STILL = {"word_dropout": 0.0, "input_dropout": 0.0, "layer_dropout": 0.0, "output_dropout": 0.0, "weight_drop": 0.0}


def small(seed=0, **keywords):
    torch.manual_seed(seed)
    return LanguageModel(WORDS, **{**SIZES, "dtype": torch.float64, **keywords})


def text(steps=9, batch=2, seed=1):
    tokens = torch.randint(WORDS, (steps + 1, batch), generator=torch.Generator().manual_seed(seed))
    return tokens[:-1], tokens[1:]


def by_hand(model, tokens, targets, drops):
    """AWD-LSTM written out with torch's own layers: the mean likelihood and both penalties.

    Draws its masks in the order of the model: words, their vectors, then for every layer its matrix and its output.
    """
    matrix = model.embedding.weight
    mask = dropout(torch.ones(WORDS, 1, dtype=matrix.dtype), drops["word_dropout"])
    vectors = (matrix * mask)[tokens]
    dropped = vectors * dropout(torch.ones_like(vectors[:1]), drops["input_dropout"])
    for n, ours in enumerate(model.layers):
        with torch.random.fork_rng(devices=[]):  # what it draws for itself is not used
            theirs = nn.LSTM(ours.input_size, ours.hidden_size, dtype=matrix.dtype)
        weights = dict(ours.named_parameters())
        weights["weight_hh_l0"] = dropout(weights["weight_hh_l0"], drops["weight_drop"])
        raw, _ = torch.func.functional_call(theirs, weights, (dropped,))
        p = drops["layer_dropout"] if n < len(model.layers) - 1 else drops["output_dropout"]
        dropped = raw * dropout(torch.ones_like(raw[:1]), p)
    logits = dropped @ matrix.T + model.decoder.bias
    nll = -logits.log_softmax(-1).gather(-1, targets.unsqueeze(-1)).mean()
    return nll, 2 * (dropped**2).mean(), ((raw[1:] - raw[:-1]) ** 2).mean()


def test_training_pass_is_awd_written_out_with_torch_layers_and_the_same_masks():
    drops = {
        "word_dropout": 0.2,
        "input_dropout": 0.4,
        "layer_dropout": 0.25,
        "output_dropout": 0.3,
        "weight_drop": 0.5,
    }
    model = small(**drops)
    tokens, targets = text()
    torch.manual_seed(5)
    nll, state, penalties = loss = model.loss(tokens, targets)
    torch.manual_seed(5)
    expected = by_hand(model, tokens, targets, drops)
    torch.testing.assert_close((nll, penalties["activation"], penalties["change"]), expected)
    torch.testing.assert_close(loss.total, sum(expected))
    assert len(state) == 3

    ours = torch.autograd.grad(loss.total, list(model.parameters()))
    theirs = torch.autograd.grad(sum(expected), list(model.parameters()))
    torch.testing.assert_close(ours, theirs)


def test_without_training_nothing_is_dropped_and_nothing_is_added():
    model = small().eval()
    tokens, targets = text()
    nll, _, penalties = loss = model.loss(tokens, targets)
    torch.testing.assert_close(nll, by_hand(model, tokens, targets, STILL)[0])
    assert penalties == {}
    assert loss.total is nll


@pytest.mark.parametrize("engine", ["auto", "loop", "cpu", "torch"])
def test_engines_agree(engine):
    tokens, _ = text()
    expected, _ = small(engine="loop").eval()(tokens)
    logits, _ = small(engine=engine).eval()(tokens)
    assert logits.shape == (9, 2, WORDS)
    torch.testing.assert_close(logits, expected)


@pytest.mark.parametrize("gate", list(rm.gates.KNOWN))
@pytest.mark.parametrize("layer", ["lstm", "gru", "janet"])
def test_every_gate_in_every_layer_learns(layer, gate):
    model = small(layer=layer, gate=gate, dtype=torch.float32)
    tokens, targets = text()
    model.loss(tokens, targets).total.backward()
    assert all(parameter.grad is not None and parameter.grad.isfinite().all() for parameter in model.parameters())


def test_nru_is_a_layer_too():
    model = small(layer="nru", hidden_size=32, embedding_size=32, dtype=torch.float32)
    loss = model.loss(*text())
    loss.total.backward()
    again = model.loss(*text(), loss.state)
    assert again.nll.isfinite()


# Dropout.


def test_a_dropped_word_is_dropped_everywhere_and_the_others_are_scaled():
    model = small(word_dropout=0.5)
    tokens = torch.arange(WORDS).repeat(4).view(4, WORDS)
    vectors = model.embedding(tokens)
    whole = model.embedding.weight[tokens]
    dropped = (vectors == 0).all(-1)
    assert 0 < dropped[0].sum() < WORDS
    assert torch.equal(dropped, dropped[0].expand(4, WORDS))
    torch.testing.assert_close(vectors[~dropped], 2 * whole[~dropped])
    assert torch.equal(model.eval().embedding(tokens), whole)


def test_word_dropout_keeps_the_mean():
    model = small(word_dropout=0.25)
    tokens = torch.arange(WORDS)
    mean = torch.stack([model.embedding(tokens) for _ in range(2000)]).mean(0)
    torch.testing.assert_close(mean, model.embedding.weight, atol=0.01, rtol=0.1)


def test_weight_drop_sends_its_gradient_to_the_stored_matrix():
    p = 0.5
    model = small(**{**STILL, "weight_drop": p}, num_layers=1, hidden_size=6)
    stored = model.layers[0].weight_hh_l0
    tokens, targets = text()
    torch.manual_seed(7)
    model.loss(tokens, targets).total.backward()

    torch.manual_seed(7)
    mask = dropout(torch.ones_like(stored), p)
    acting = small(**STILL, num_layers=1, hidden_size=6)
    acting.load_state_dict(model.state_dict())
    with torch.no_grad():
        acting.layers[0].weight_hh_l0.mul_(mask)
    acting.loss(tokens, targets).total.backward()
    assert 0 < (mask == 0).sum() < mask.numel()
    assert (stored.grad[mask == 0] == 0).all()
    assert (stored.grad[mask != 0] != 0).all()
    torch.testing.assert_close(stored.grad, acting.layers[0].weight_hh_l0.grad * mask)


def test_recurrent_matrices_train():
    model = small()
    before = [layer.weight_hh_l0.detach().clone() for layer in model.layers]
    optimiser = torch.optim.SGD(model.parameters(), lr=1.0)
    for _ in range(3):
        optimiser.zero_grad()
        model.loss(*text()).total.backward()
        optimiser.step()
    for layer, old in zip(model.layers, before, strict=True):
        assert (layer.weight_hh_l0 != old).double().mean() > 0.7  # of three draws, one in eight entries was in none


def test_recurrent_matrices_can_be_kept_from_training():
    model = small(frozen_recurrent=True)
    model.loss(*text()).total.backward()
    trained = {name for name, parameter in model.named_parameters() if parameter.grad is not None}
    stopped = {name for name, _ in model.named_parameters()} - trained
    assert stopped == {f"layers.{n}.weight_hh_l0" for n in range(3)}


# The softmax.


def test_tied_weights_are_one_parameter():
    model = small()
    assert model.decoder.weight is None
    assert [name for name, _ in model.named_parameters() if "embedding" in name or "decoder" in name] == [
        "embedding.weight",
        "decoder.bias",
    ]
    assert list(model.state_dict()) == [name for name, _ in model.named_parameters()]
    model.loss(*text()).nll.backward()
    words = torch.unique(text()[0])
    unread = [word for word in range(WORDS) if word not in words]
    assert unread
    assert (model.embedding.weight.grad[unread] != 0).any(-1).all()  # through the softmax


def test_untied_weights_are_two_and_the_last_layer_is_as_wide_as_the_others():
    model = small(tie=False)
    assert [layer.hidden_size for layer in model.layers] == [8, 8, 8]
    assert model.decoder.weight.shape == (WORDS, 8)


def test_one_hot_words_have_no_vectors():
    torch.manual_seed(0)
    model = LanguageModel(5, None, 4, 1, tie=False, **STILL, dtype=torch.float64)
    tokens = torch.tensor([[0], [3]])
    expected, _ = model.layers[0](torch.eye(5, dtype=torch.float64)[tokens])
    logits, _ = model(tokens)
    torch.testing.assert_close(logits, model.decoder(expected))
    assert model.embedding.weight is None


def test_softmax_weights_start_small_and_its_bias_at_zero():
    model = small(tie=False)
    for weight in (model.embedding.weight, model.decoder.weight):
        assert 0.05 < weight.abs().max() <= 0.1
    assert (model.decoder.bias == 0).all()


# State.


@settings(max_examples=15, deadline=None)
@given(cuts=st.lists(st.integers(1, 8), max_size=3), gate=st.sampled_from(["sigmoid", "power_law"]))
def test_text_in_pieces_is_the_text_in_one(cuts, gate):
    model = small(gate=gate).eval()
    tokens, _ = text()
    whole, end = model(tokens)
    state, parts = None, []
    places = [0, *sorted(set(cuts)), 9]
    for start, stop in pairwise(places):
        part, state = model(tokens[start:stop], state)
        parts.append(part)
    torch.testing.assert_close(torch.cat(parts), whole)
    torch.testing.assert_close(state, end)


def test_the_state_of_a_loss_takes_no_gradients_along():
    model = small(gate="power_law")
    tokens, targets = text()
    first = model.loss(tokens, targets)
    assert not any(part.requires_grad for layer in first.state for part in layer)
    first.total.backward()
    model.loss(tokens, targets, first.state).total.backward()  # would need the first graph once more


def test_one_text_needs_no_batch():
    model = small().eval()
    tokens, targets = text(batch=1)
    torch.testing.assert_close(model(tokens[:, 0])[0], model(tokens)[0][:, 0])
    torch.testing.assert_close(model.loss(tokens[:, 0], targets[:, 0]).nll, model.loss(tokens, targets).nll)


def test_one_step_has_no_change_to_penalise():
    loss = small().loss(*text(steps=1))
    assert list(loss.penalties) == ["activation"]
    assert loss.total.isfinite()


def test_small_whole_numbers_do():
    model = small().eval()
    tokens, targets = text()
    torch.testing.assert_close(model.loss(tokens.int(), targets.int()).nll, model.loss(tokens, targets).nll)


# Precision.


def test_autocast_trains_in_bfloat16_and_sums_in_float32():
    model = small(dtype=torch.float32, **STILL)
    tokens, targets = text()
    expected = model.loss(tokens, targets)
    with torch.autocast("cpu", torch.bfloat16):
        logits, _ = model(tokens)
        loss = model.loss(tokens, targets)
    assert logits.dtype == torch.bfloat16
    assert {loss.total.dtype, *(value.dtype for value in loss.penalties.values())} == {torch.float32}
    torch.testing.assert_close(loss.total, expected.total, atol=0.02, rtol=0)
    loss.total.backward()
    assert all(parameter.grad.dtype == torch.float32 for parameter in model.parameters())


def test_a_model_in_bfloat16_runs():
    model = small(dtype=torch.bfloat16)
    loss = model.loss(*text())
    assert loss.total.dtype == torch.float32
    loss.total.backward()


# The papers' models.


@pytest.mark.parametrize(
    ("name", "words", "count"),
    [
        ("baseline", 10_000, 24_221_600),
        ("mts", 10_000, 24_221_600),
        ("fast", 10_000, 24_221_600),
        ("refine", 10_000, 24_221_600),
        ("baseline", 33_278, 33_556_078),
        ("char-lstm", 50, 2_150_482),
        ("char-plstm", 50, 2_152_194),
        ("text8-lstm", 27, 3_223_067),
        ("text8-plstm", 27, 3_222_875),
    ],
)
def test_number_of_parameters(name, words, count):
    model = language_model(name, words, device="meta")
    assert sum(parameter.numel() for parameter in model.parameters()) == count


def test_timescales_of_the_multi_timescale_model():
    model = language_model("mts", 20)
    assert [layer.hidden_size for layer in model.layers] == [1150, 1150, 400]
    first, second, third = rm.timescales.of(model)
    torch.testing.assert_close(first, torch.tensor([3.0] * 575 + [4.0] * 575).double(), rtol=1e-5, atol=0)
    means = [float(group.mean()) for group in second[:1100].split(100)]
    assert [float(f"{mean:.3g}") for mean in means[:3]] == [6730, 50.6, 18.7]
    assert (second[:-1] > second[1:]).all()
    assert second.isfinite().all()
    assert second[-1] > 0  # quantile one would be zero, with a bias of minus infinity
    assert third.max() < 2
    assert all(parameter.isfinite().all() for parameter in model.state_dict().values())


@pytest.mark.parametrize("freeze", [True, "all"])
def test_frozen_biases_are_bitwise_unchanged_by_decay_and_averaging(freeze):
    torch.manual_seed(0)
    model = language_model("mts", WORDS, embedding_size=6, hidden_size=8, freeze=freeze)
    averaged = torch.optim.swa_utils.AveragedModel(model)
    fixed = {name: value.clone() for name, value in model.named_buffers()}
    biases = [row.clone() for rows in model.forget_biases()[:2] for row in rows]
    free = {name: value.detach().clone() for name, value in model.named_parameters()}
    optimiser = torch.optim.SGD(model.parameters(), lr=1.0, weight_decay=0.1)
    state = None
    for _ in range(4):
        optimiser.zero_grad()
        loss = model.loss(*text(), state)
        state = loss.state
        loss.total.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.25)
        optimiser.step()
        averaged.update_parameters(model)
    assert fixed
    for now in (model, averaged.module):
        assert all(torch.equal(value, fixed[name]) for name, value in now.named_buffers())
        after = [row for rows in now.forget_biases()[:2] for row in rows]
        assert all(torch.equal(a, b) for a, b in zip(after, biases, strict=True))
        for layer in now.layers[:2]:
            for bias in (layer.bias_ih_l0, layer.bias_hh_l0):
                block = bias[: 2 * 8] if freeze is True else bias  # input and forget come first
                assert (block == 0).all()
    if freeze is True:
        bias = model.layers[0].bias_hh_l0
        assert (bias[16:] != free["layers.0.bias_hh_l0"][16:]).all()
    assert (model.layers[2].bias_hh_l0 != free["layers.2.bias_hh_l0"]).all()


def test_biases_of_other_gates_start_as_torch_would_draw_them():
    torch.manual_seed(0)
    for name in ("fast", "refine"):
        model = language_model(name, WORDS, embedding_size=64, hidden_size=64)
        for layer in model.layers:
            assert 0.1 < layer.bias_hh_l0.abs().max() <= 1 / math.sqrt(64)
            assert 0.1 < layer.bias_ih_l0.abs().max() <= 1 / math.sqrt(64)
    matched = language_model("fast", WORDS, embedding_size=4, hidden_size=4, forget_bias="matched")
    torch.testing.assert_close(
        rm.timescales.of(matched)[0], torch.full((4,), 3.1922, dtype=torch.float64), rtol=1e-4, atol=0
    )


def test_numbers_for_all_layers_at_once_are_handed_out():
    model = small(timescales=rm.timescales.Fixed([[2.0] * 8, None, [5.0] * 6], freeze=True))
    first, _, third = rm.timescales.of(model)
    torch.testing.assert_close(first, torch.full((8,), 2.0, dtype=torch.float64))
    torch.testing.assert_close(third, torch.full((6,), 5.0, dtype=torch.float64))


def test_one_timescale_serves_all_layers():
    model = small(timescales=rm.timescales.Chrono(10))
    assert all((scale > 1).all() for scale in rm.timescales.of(model))


# Mistakes.


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({"hidden_size": [8, 8, 8]}, "expected the last layer to have 6 units, the embedding_size, got 8"),
        ({"hidden_size": [8, 6]}, "expected hidden_size for 3 layers, got 2"),
        ({"embedding_size": None}, "expected tie=False with one-hot words"),
        ({"layer": "lstn"}, "expected layer to be one of .* did you mean 'lstm'"),
        ({"gate": "fastt"}, "expected gate to be one of .* did you mean 'fast'"),
        ({"layer": "gru", "input_gate": "coupled"}, "expected input_gate with layer 'lstm' only"),
        ({"layer": "nru", "gate": "fast"}, "expected no gate, forget_bias or timescales with layer 'nru'"),
        ({"word_dropout": 1.5}, r"expected word_dropout to be a number in \[0, 1\], got 1.5"),
        ({"weight_drop": "a"}, "expected weight_drop to be a number"),
        ({"activation_penalty": None}, "expected activation_penalty to be a finite number"),
        ({"initial_range": "a"}, "expected initial_range to be a finite number"),
        ({"num_layers": 0}, "expected num_layers to be a positive integer"),
        ({"timescales": [None]}, "expected timescales for 3 layers, got 1"),
    ],
)
def test_wrong_argument(keywords, message):
    with pytest.raises(ValueError, match=message):
        small(**keywords)


@pytest.mark.parametrize("vocabulary", [0, -1, True])
def test_wrong_number_of_words(vocabulary):
    with pytest.raises(ValueError, match="expected vocabulary to be a positive integer"):
        LanguageModel(vocabulary)


def test_no_vocabulary():
    with pytest.raises(TypeError, match="expected vocabulary to be a number of words or an object with len"):
        LanguageModel(3.5)


def test_unknown_name():
    with pytest.raises(ValueError, match=r"expected language model to be one of .* did you mean 'baseline'"):
        language_model("base-line", 10)


def test_wrong_calls():
    model = small()
    tokens, targets = text()
    with pytest.raises(ValueError, match="expected tokens to be int32 or int64"):
        model(tokens.double())
    with pytest.raises(ValueError, match=r"expected targets of shape \(9, 2\), got \(8, 2\)"):
        model.loss(tokens, targets[1:])
    with pytest.raises(ValueError, match="expected the state of 3 layers, got 1"):
        model(tokens, (None,))
    with pytest.raises(ValueError, match="expected no dt"):
        model.watch(tokens, None, 1.0)
    with pytest.raises(ValueError, match=r"expected integers of shape \(T, B\)"):
        model.watch(tokens.unsqueeze(0))


def test_cross_entropy_is_over_flattened_logits():
    model = small().eval()
    tokens, targets = text()
    logits, _ = model(tokens)
    torch.testing.assert_close(model.loss(tokens, targets).nll, cross_entropy(logits.flatten(0, 1), targets.flatten()))
