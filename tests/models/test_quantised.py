"""Dynamic quantisation of a model, as described on the page about deploying."""

import platform

import pytest
import torch

import remanence as rm
from remanence.models import SequenceModel


@pytest.fixture
def on_this_processor():
    """The kernels of quantised linear layers that it has."""
    before = torch.backends.quantized.engine
    if platform.machine().lower() in ("aarch64", "arm64"):
        torch.backends.quantized.engine = "qnnpack"
    yield
    torch.backends.quantized.engine = before


@pytest.mark.filterwarnings("ignore")  # torch is about to move this elsewhere
@pytest.mark.parametrize("layer", [rm.LSTM, rm.PowerLawLSTM, rm.NRU])
def test_recurrent_layers_stay_in_float_and_the_read_out_is_quantised(layer, on_this_processor):
    model = SequenceModel(layer(3, 8), 2).eval()
    quantised = torch.ao.quantization.quantize_dynamic(model, {torch.nn.Linear, torch.nn.LSTM, layer})
    assert type(quantised.layer) is layer
    assert {weight.dtype for weight in quantised.layer.parameters()} == {torch.float32}
    assert quantised.head.weight().dtype == torch.qint8
    x = torch.randn(7, 2, 3)
    torch.testing.assert_close(quantised(x)[1], model(x)[1])
    torch.testing.assert_close(quantised(x)[0], model(x)[0], rtol=0.05, atol=0.05)
