"""The shared keywords of layers: in the signature, typed, and checked as if every layer listed them itself."""

import inspect
import warnings
from typing import get_type_hints

import pytest

import remanence as rm
from remanence.nn.keywords import GatedKeywords, Keywords

LAYERS = [rm.LSTM, rm.GRU, rm.JANET, rm.NRU, rm.PhasedLSTM, rm.PowerLawLSTM, rm.ExpRNN, rm.UnitaryRNN, rm.SRU, rm.GORU]
every_layer = pytest.mark.parametrize("layer", LAYERS, ids=lambda layer: layer.__name__)


def keywords_of(layer):
    """Keyword-only parameters by name."""
    parameters = inspect.signature(layer).parameters
    return {name: each for name, each in parameters.items() if each.kind is inspect.Parameter.KEYWORD_ONLY}


def test_typed_keywords_are_those_of_any_layer():
    hints = get_type_hints(rm.nn.Recurrent.__init__)
    assert get_type_hints(GatedKeywords) == {name: hints[name] for name in keywords_of(rm.nn.Recurrent)}


@every_layer
def test_signature_shows_every_argument_with_its_default(layer):
    shared = Keywords if layer in (rm.NRU, rm.ExpRNN, rm.UnitaryRNN, rm.SRU) else GatedKeywords
    whole, shown = keywords_of(rm.nn.Recurrent), keywords_of(layer)
    names = [name for name in whole if name in shared.__optional_keys__]
    assert list(shown)[-len(names) :] == names
    assert [shown[name] for name in names] == [whole[name] for name in names]
    assert not whole.keys() & shown.keys() - set(names)
    kinds = {parameter.kind for parameter in inspect.signature(layer).parameters.values()}
    assert kinds == {inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY}


@every_layer
@pytest.mark.parametrize("name", ["cell", "shared", "hiden_size"])
def test_error_for_an_unknown_keyword_names_the_layer(layer, name):
    with pytest.raises(TypeError) as refused:
        layer(1, 2, **{name: 3})
    assert str(refused.value) == f"{layer.__name__}.__init__() got an unexpected keyword argument {name!r}"


@pytest.mark.parametrize("name", ["forget_bias", "timescales", "gate", "proj_size"])
def test_layer_without_a_gate_takes_no_keyword_of_one(name):
    with pytest.raises(TypeError, match=rf"NRU.__init__\(\) got an unexpected keyword argument '{name}'"):
        rm.NRU(1, 2, **{name: None})


@pytest.mark.parametrize("make", [*LAYERS, lambda *sizes, **keywords: rm.make("fast", *sizes, **keywords)])
def test_warning_points_to_the_line_of_user_code(make):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        make(1, 2, dropout=0.5)
    assert [warning.filename for warning in caught] == [__file__]
