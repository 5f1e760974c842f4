"""A language model in use: perplexity, generation, activations by timescale, saving."""

import json
import math
from itertools import pairwise

import numpy as np
import pytest
import torch

import remanence as rm
from remanence.language import Vocabulary
from remanence.models import LanguageModel, language_model
from remanence.timescales import Chrono, Fixed, InverseGamma

SENTENCES = "the cat sat on the mat and the dog sat on the cat"


class Stand:
    """The least a vocabulary has."""

    def __init__(self, words):
        self.own = list(words)

    def __len__(self):
        return len(self.own)

    def encode(self, words):
        return np.array([self.own.index(word) for word in words], np.int32)

    def decode(self, numbers):
        return [self.own[number] for number in numbers]


STAND = Stand(sorted(set(SENTENCES.split())))
VOCABULARY = Vocabulary([*STAND.own, "<eos>", "<unk>"], "<unk>")


def small(vocabulary=STAND, seed=0, **keywords):
    torch.manual_seed(seed)
    given = {"embedding_size": 6, "hidden_size": 8, "dtype": torch.float64, **keywords}
    return LanguageModel(vocabulary, **given)


# A model that is a table of bigrams.


def bigram_model(chances):
    """A model whose weights are set so that it gives `chances[a, b]` for word b after word a, whatever came before.

    One layer of one unit per word. The input gate is open and the forget gate shut, so a cell holds tanh of what comes
    in now, large for the word that was read; the output gate is open.
    """
    count = len(chances)
    model = LanguageModel(count, None, count, 1, tie=False, gate="sigmoid", dtype=torch.float64)
    layer = model.layers[0]
    large = 50.0
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
        inputs, forget, candidate, output = layer.bias_ih_l0.view(4, count)
        inputs.fill_(large), forget.fill_(-large), output.fill_(large)
        layer.weight_ih_l0.view(4, count, count)[2] = large * torch.eye(count, dtype=torch.float64)
        assert (candidate == 0).all()
        model.decoder.weight.copy_(chances.log().T / math.tanh(1.0))
    return model


def test_a_table_of_bigrams_has_the_perplexity_counted_by_hand():
    generator = torch.Generator().manual_seed(3)
    chances = torch.rand(5, 5, generator=generator, dtype=torch.float64) + 0.1
    chances /= chances.sum(1, keepdim=True)
    stream = [0]
    for _ in range(400):
        stream.append(int(torch.multinomial(chances[stream[-1]], 1, generator=generator)))
    expected = [-math.log(chances[a, b]) for a, b in pairwise(stream)]
    model = bigram_model(chances)
    assert model.training
    np.testing.assert_allclose(model.token_losses(stream).numpy(), expected, rtol=1e-6)
    assert model.perplexity(stream) == pytest.approx(math.exp(sum(expected) / 400), rel=1e-12)
    assert model.training


# Measuring.


@pytest.mark.parametrize("gate", ["sigmoid", "power_law"])
def test_perplexity_is_that_of_one_long_run(gate):
    model = small(7, gate=gate)
    stream = torch.randint(7, (50,), generator=torch.Generator().manual_seed(0))
    model.eval()
    with torch.no_grad():
        logits, _ = model(stream[:-1].unsqueeze(1))
    likely = logits[:, 0].log_softmax(-1)
    expected = [-float(likely[n, stream[n + 1]]) for n in range(49)]
    model.train()
    for chunk in (1, 7, 49, 70):
        losses = model.token_losses(stream, chunk=chunk)
        assert losses.dtype == torch.float32
        np.testing.assert_allclose(losses.numpy(), expected, rtol=1e-6)
        assert model.perplexity(stream, chunk=chunk) == pytest.approx(math.exp(np.mean(expected)), rel=1e-12)


def test_parts_side_by_side_are_parts_one_by_one():
    model = small(7)
    stream = torch.randint(7, (50,), generator=torch.Generator().manual_seed(0))
    parts = [model.token_losses(stream[start : start + 16]) for start in (0, 16, 32)]
    torch.testing.assert_close(model.token_losses(stream, batch=3, chunk=5), torch.cat(parts))
    assert model.perplexity(stream, batch=3) == pytest.approx(math.exp(torch.cat(parts).double().mean()), rel=1e-6)


def test_text_words_lists_and_arrays_are_one_stream():
    model = small()
    numbers = STAND.encode(SENTENCES.split())
    numbers.flags.writeable = False  # as a corpus mapped into memory
    expected = model.perplexity(numbers)
    for given in (SENTENCES, SENTENCES.split(), numbers.tolist(), torch.tensor(numbers.tolist(), dtype=torch.int32)):
        assert model.perplexity(given) == expected


def test_measuring_leaves_modes_and_gradients_alone():
    model = small()
    model.layers[1].eval()
    model.perplexity(SENTENCES)
    next(model.generate("the", 1))
    model.activations(SENTENCES)
    assert model.training
    assert model.layers[0].training
    assert not model.layers[1].training
    assert torch.is_grad_enabled()


@pytest.mark.parametrize(
    ("stream", "error", "message"),
    [
        ([1], ValueError, "expected a text of at least 2 words, got 1"),
        ([], ValueError, "expected a text of at least 2 words, got 0"),
        ([1, 99], ValueError, "expected token ids from 0 to 6, got 99"),
        ([1, -2], ValueError, "expected token ids from 0 to 6, got -2"),
        ([0.5, 1.0], ValueError, "expected integers of shape"),
        ([[0, 1]], ValueError, "expected integers of shape"),
        (None, TypeError, "expected a text or its token ids, got NoneType"),
        ("the cat", ValueError, "expected token ids, got text"),
    ],
)
def test_wrong_stream(stream, error, message):
    with pytest.raises(error, match=message):
        small(7).perplexity(stream)


def test_wrong_chunks():
    with pytest.raises(ValueError, match="expected chunk to be a positive integer"):
        small(7).perplexity([1, 2], chunk=0)
    with pytest.raises(ValueError, match="expected batch to be a positive integer"):
        small(7).perplexity([1, 2], batch=0)
    with pytest.raises(ValueError, match="expected a text of at least 6 words, got 2"):
        small(7).perplexity([1, 2], batch=3)


# Writing.


def test_the_same_random_numbers_write_the_same_text():
    model = small()
    first, again, other = (
        list(model.generate("the cat", 30, generator=torch.Generator().manual_seed(seed))) for seed in (1, 1, 2)
    )
    assert first == again != other
    assert len(first) == 30
    assert set(first) <= set(STAND.own)


def test_without_a_vocabulary_numbers_are_written():
    drawn = list(small(7).generate([1, 2], 5))
    assert all(type(number) is int and 0 <= number < 7 for number in drawn)


def test_words_are_drawn_with_their_chances_and_the_state_is_carried():
    model = small(7, initial_range=2.0)
    generator = torch.Generator().manual_seed(0)
    drawn = list(model.generate([1, 2, 3], 6, temperature=0.7, generator=generator))
    generator = torch.Generator().manual_seed(0)
    model.eval()
    stream = [1, 2, 3]
    for _ in range(6):
        with torch.no_grad():
            logits, _ = model(torch.tensor(stream))  # from the beginning each time
        stream.append(int(torch.multinomial((logits[-1] / 0.7).softmax(-1), 1, generator=generator)))
    assert drawn == stream[3:]


@pytest.mark.parametrize("top_k", [1, 2, 7, 100])
def test_only_the_likeliest_words_are_drawn(top_k):
    model = small(7, initial_range=0.5)
    stream = [1, *model.generate([1], 60, temperature=5.0, top_k=top_k, generator=torch.Generator().manual_seed(0))]
    model.eval()
    with torch.no_grad():
        logits, _ = model(torch.tensor(stream[:-1]))
    ranks = [int((row > row[word]).sum()) for row, word in zip(logits, stream[1:], strict=True)]
    assert max(ranks) == min(top_k, 7) - 1


def test_no_temperature_takes_the_likeliest_word():
    model = small(7, initial_range=2.0)
    assert list(model.generate([1], 20, temperature=0)) == list(model.generate([1], 20, top_k=1))


def test_words_come_as_they_are_drawn():
    model = small()
    words = model.generate("the", 10**9)
    assert next(words) in STAND.own


def test_text_starts_after_the_end_of_a_sentence():
    drawn = [
        list(small(VOCABULARY).generate(prompt, 8, generator=torch.Generator().manual_seed(0)))
        for prompt in ("", "<eos>", "\n")
    ]
    assert drawn[0] == drawn[1] == drawn[2]


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({"temperature": -1}, "expected temperature to be a number of at least 0, got -1"),
        ({"temperature": math.inf}, "expected temperature to be a number of at least 0"),
        ({"top_k": 0}, "expected top_k to be a positive integer, got 0"),
        ({"length": 0}, "expected length to be a positive integer, got 0"),
        ({"prompt": []}, "expected a prompt, got none"),
        ({"prompt": "the"}, "expected token ids, got text"),
    ],
)
def test_wrong_wishes_are_answered_at_once(keywords, message):
    with pytest.raises(ValueError, match=message):
        small(7).generate(**{"prompt": [1], **keywords})


# Reading.


def test_activations_are_those_of_the_layers_sorted_by_timescale():
    model = small(timescales=[InverseGamma(0.56), Chrono(30), None])
    seen = model.activations(SENTENCES, chunk=5)
    assert seen.words == SENTENCES.split()
    assert seen.tokens.tolist() == STAND.encode(SENTENCES.split()).tolist()
    model.eval()
    with torch.no_grad():
        values = model.embedding(seen.tokens).unsqueeze(1)
        for layer, own, scale in zip(model.layers, seen.layers, rm.timescales.of(model), strict=True):
            record = rm.record(layer, values)
            values = record["hidden"]
            torch.testing.assert_close(own.hidden, values[:, 0, own.units])
            torch.testing.assert_close(own.cell, record["cell"][:, 0, own.units])
            torch.testing.assert_close(own.timescales, scale[own.units])
            assert (own.timescales[1:] >= own.timescales[:-1]).all()
            assert sorted(own.units.tolist()) == list(range(layer.hidden_size))
    assert seen.layers[0].units.tolist() == list(range(7, -1, -1))  # these were assigned long to short


def test_units_without_a_timescale_are_sorted_by_what_they_forget():
    model = small(gate="power_law")
    seen = model.activations(SENTENCES, chunk=4)
    tokens = torch.from_numpy(STAND.encode(SENTENCES.split())).unsqueeze(1)
    for own, expected in zip(seen.layers, rm.timescales.estimate(model, tokens), strict=True):
        torch.testing.assert_close(own.timescales, expected[own.units])


def test_reading_goes_on_from_a_state_in_a_given_order():
    model = small(gate="power_law")
    words = SENTENCES.split()
    whole = model.activations(words)
    scales = [torch.empty_like(own.timescales).scatter_(0, own.units, own.timescales) for own in whole.layers]
    first = model.activations(words[:5], timescales=scales)
    second = model.activations(words[5:], timescales=scales, state=first.state)
    for a, b, own in zip(first.layers, second.layers, whole.layers, strict=True):
        torch.testing.assert_close(torch.cat((a.cell, b.cell)), own.cell)
        assert torch.equal(a.units, own.units)


def test_wrong_timescales_to_sort_by():
    with pytest.raises(ValueError, match="expected timescales of 3 layers, got 1"):
        small().activations("the", timescales=[torch.ones(8)])
    with pytest.raises(ValueError, match="expected 8 timescales, one per unit, got shape"):
        small().activations("the", timescales=[torch.ones(7)] * 3)


def test_a_model_without_gates_has_no_timescales():
    with pytest.raises(ValueError, match="expected a layer with a forget gate, got NRU"):
        small(layer="nru").activations("the")


def test_estimated_timescales_are_those_of_forget_values_in_eval_mode():
    model = small(7)
    stream = torch.randint(7, (40, 1))
    chunks = [stream[:25], stream[25:]]
    scales = rm.timescales.estimate(model, chunks, carry_state=True)
    model.eval()
    records, _, _ = model.watch(stream)
    for scale, record in zip(scales, records, strict=True):
        torch.testing.assert_close(scale, -1 / record["forget"].mean((0, 1)).log())


def test_a_group_of_units_can_be_silenced_for_the_next_layer_only():
    model = small(7).eval()
    stream = torch.randint(7, (30,), generator=torch.Generator().manual_seed(1))

    def silence(layer, given, result):
        output, state = result
        return output * (torch.arange(8) >= 4), state

    before = model.token_losses(stream)
    hook = model.layers[1].register_forward_hook(silence)
    silenced = model.token_losses(stream)
    hook.remove()
    assert not torch.allclose(silenced, before)
    model.layers[2].weight_ih_l0.data[:, :4] = 0
    torch.testing.assert_close(model.token_losses(stream), silenced)


# Keeping.


@pytest.mark.parametrize(
    "keywords",
    [
        {},
        {"gate": rm.gates.PowerLaw(p=0.4, eps=1e-5), "tie": False, "hidden_size": (5, 4, 3)},
        {
            "timescales": [
                Fixed([2.0] * 8, freeze=True),
                InverseGamma(1.5, freeze="all"),
                None,
            ]
        },
        {"embedding_size": None, "tie": False, "layer": "gru", "dtype": torch.float32},
        {"gate": "refine", "input_gate": "coupled", "forget_bias": "uniform", "dtype": torch.bfloat16},
    ],
)
def test_a_kept_model_is_the_model(tmp_path, keywords):
    model = small(VOCABULARY, **keywords)
    model.save(tmp_path / "model.safetensors")
    before = torch.get_rng_state()
    again = LanguageModel.load(tmp_path / "model.safetensors")
    assert torch.equal(torch.get_rng_state(), before)
    assert again.vocabulary == VOCABULARY
    assert str(again) == str(model)
    mine, theirs = model.state_dict(), again.state_dict()
    assert mine.keys() == theirs.keys()
    assert all(torch.equal(mine[name], theirs[name]) and mine[name].dtype == theirs[name].dtype for name in mine)
    assert again.perplexity(SENTENCES) == model.perplexity(SENTENCES)
    assert [path.name for path in tmp_path.iterdir()] == ["model.safetensors"]


def test_a_vocabulary_of_another_kind_is_given_again(tmp_path):
    small().save(tmp_path / "model.safetensors")
    assert LanguageModel.load(tmp_path / "model.safetensors").vocabulary is None
    again = LanguageModel.load(tmp_path / "model.safetensors", vocabulary=STAND)
    assert again.perplexity(SENTENCES) == small().perplexity(SENTENCES)
    with pytest.raises(ValueError, match=r"expected a vocabulary of 7 words, as the saved model has, got 9"):
        LanguageModel.load(tmp_path / "model.safetensors", vocabulary=VOCABULARY)


def test_the_head_of_a_file_is_json(tmp_path):
    from safetensors import safe_open

    language_model("mts", 7, embedding_size=4, hidden_size=4).save(tmp_path / "model.safetensors")
    with safe_open(tmp_path / "model.safetensors", "pt") as file:
        about = json.loads(file.metadata()["remanence.language_model"])
        assert "decoder.weight" not in file.keys()  # noqa: SIM118
    assert about["arguments"]["timescales"][1] == {
        "timescales": "InverseGamma",
        "alpha": 0.56,
        "scale": 1.0,
        "freeze": True,
    }


def test_what_is_no_model_is_refused(tmp_path):
    from safetensors.torch import save_file

    with pytest.raises(ValueError, match="which does not exist"):
        LanguageModel.load(tmp_path / "nothing.safetensors")
    (tmp_path / "junk.safetensors").write_bytes(b"junk")
    with pytest.raises(ValueError, match="which has none"):
        LanguageModel.load(tmp_path / "junk.safetensors")
    save_file({"a": torch.ones(1)}, tmp_path / "other.safetensors")
    with pytest.raises(ValueError, match="which has none"):
        LanguageModel.load(tmp_path / "other.safetensors")
    with pytest.raises(ValueError, match="expected to write"):
        small().save(tmp_path / "no folder" / "model.safetensors")


def test_a_text_is_learned():
    model = small(VOCABULARY, dtype=torch.float32, hidden_size=24, embedding_size=24, num_layers=2, weight_drop=0.1)
    stream = torch.from_numpy(VOCABULARY.encode(VOCABULARY.split(SENTENCES + "\n"))).long().repeat(3).unsqueeze(1)
    optimiser = torch.optim.Adam(model.parameters(), lr=0.02)
    before = model.perplexity(stream[:, 0])
    for _ in range(40):
        optimiser.zero_grad()
        model.loss(stream[:-1], stream[1:]).total.backward()
        optimiser.step()
    assert model.perplexity(stream[:, 0]) < 0.4 * before


def test_one_text_is_watched_like_a_batch_of_one():
    model = rm.models.LanguageModel(50, 8, (6, 8), 2).eval()
    tokens = torch.randint(50, (20,))
    records, state, lengths = model.watch(tokens)
    batched, _, _ = model.watch(tokens.unsqueeze(1))
    for one, other in zip(records, batched, strict=True):
        assert one["forget"].shape == (20, 1, one["forget"].shape[-1])
        assert torch.equal(one["forget"], other["forget"])
    assert lengths is None
    for one, other in zip(state, model(tokens)[1], strict=True):
        for part, expected in zip(one, other, strict=True):
            torch.testing.assert_close(part, expected.detach())
    whole = rm.timescales.estimate(model, tokens)
    chunks = rm.timescales.estimate(model, [tokens[:7], tokens[7:]], carry_state=True)
    torch.testing.assert_close(chunks, whole)
    with pytest.raises(ValueError, match=r"^expected integers of shape \(T, B\) or \(T,\), got "):
        model.watch(torch.zeros(2, 3, 4, dtype=torch.long))
