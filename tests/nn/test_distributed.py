"""Layers and language models with DDP and FSDP2, in two processes with gloo on CPUs."""

import multiprocessing

import pytest
import torch
from torch import nn

import remanence as rm
from remanence.models import LanguageModel

pytestmark = pytest.mark.long

STEPS, BATCH, INPUTS, UNITS, WORDS = 5, 6, 3, 8, 11
F64 = {"dtype": torch.float64}


class Readout(nn.Module):
    """A layer with a loss: the weighted sum of its outputs."""

    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, inputs, dt):
        output, _ = self.layer(inputs) if dt is None else self.layer(inputs, dt=dt)
        return output.square().mean() + output[-1].sin().mean()


class Words(nn.Module):
    """The loss of a language model."""

    def __init__(self):
        super().__init__()
        self.model = LanguageModel(
            WORDS,
            6,
            UNITS,
            2,
            word_dropout=0,
            input_dropout=0,
            layer_dropout=0,
            output_dropout=0,
            weight_drop=0,
            timescales=[rm.timescales.InverseGamma(0.6), None],
            **F64,
        )

    def forward(self, inputs, dt):
        tokens = (inputs[..., 0].abs() * 7).long() % WORDS
        return self.model.loss(tokens[:-1], tokens[1:]).total


KINDS = {
    "lstm": lambda: Readout(rm.LSTM(INPUTS, UNITS, 2, bidirectional=True, **F64)),
    "lstm with a projection": lambda: Readout(rm.LSTM(INPUTS, UNITS, proj_size=4, **F64)),
    "fast gate": lambda: Readout(rm.LSTM(INPUTS, UNITS, gate="fast", **F64)),
    "refine gate": lambda: Readout(rm.LSTM(INPUTS, UNITS, gate="refine", **F64)),
    "frozen timescales": lambda: Readout(
        rm.LSTM(INPUTS, UNITS, timescales=rm.timescales.Chrono(20, freeze=True), **F64)
    ),
    "gru": lambda: Readout(rm.GRU(INPUTS, UNITS, **F64)),
    "janet": lambda: Readout(rm.JANET(INPUTS, UNITS, **F64)),
    "nru": lambda: Readout(rm.NRU(INPUTS, UNITS, memory_size=18, heads=2, **F64)),
    "power law with dt": lambda: Readout(rm.PowerLawLSTM(INPUTS, UNITS, 2, **F64)),
    "phased with dt": lambda: Readout(rm.PhasedLSTM(INPUTS, UNITS, **F64)),
    "language model": Words,
}


def made(kind):
    """A model, and inputs of a whole batch, the same in every process."""
    torch.manual_seed(5)
    model = KINDS[kind]()
    inputs = torch.randn(STEPS, BATCH, INPUTS, **F64)
    return model, inputs, torch.rand(STEPS, BATCH, **F64) + 0.5 if "dt" in kind else None


def stepped(model, inputs, dt):
    """Two steps of SGD."""
    optimiser = torch.optim.SGD(model.parameters(), 0.5)
    for _ in range(2):
        optimiser.zero_grad()
        model(inputs, dt).backward()
        optimiser.step()


def works(rank, folder):
    """The work of a process: train every model with both wrappers on its half of the batch."""
    import torch.distributed as dist
    from torch.distributed.fsdp import fully_shard
    from torch.nn.parallel import DistributedDataParallel

    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2)
    mesh = dist.init_device_mesh("cpu", (2,))
    half = slice(rank * BATCH // 2, (rank + 1) * BATCH // 2)
    for kind in KINDS:
        for wrapper in ("ddp", "fsdp"):
            model, inputs, dt = made(kind)
            if wrapper == "ddp":
                wrapped = DistributedDataParallel(model)
            else:
                for part in model.modules():
                    if isinstance(part, rm.nn.Recurrent):
                        fully_shard(part, mesh=mesh)
                wrapped = fully_shard(model, mesh=mesh)
            stepped(wrapped, inputs[:, half], None if dt is None else dt[:, half])
            whole = {
                name: getattr(value, "full_tensor", lambda v=value: v)() for name, value in model.named_parameters()
            }
            if rank == 0:
                torch.save({name: value.detach() for name, value in whole.items()}, f"{folder}/{kind} {wrapper}")
    dist.destroy_process_group()


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """The folder with the weights that two processes have trained."""
    folder = tmp_path_factory.mktemp("ranks")
    context = multiprocessing.get_context("spawn")
    ranks = [context.Process(target=works, args=(rank, folder)) for rank in range(2)]
    for process in ranks:
        process.start()
    for process in ranks:
        process.join(300)
    assert [process.exitcode for process in ranks] == [0, 0]
    return folder


@pytest.mark.parametrize("wrapper", ["ddp", "fsdp"])
@pytest.mark.parametrize("kind", KINDS)
def test_two_processes_train_the_same_weights_as_one(found, kind, wrapper):
    model, inputs, dt = made(kind)
    start = {name: value.detach().clone() for name, value in model.named_parameters()}
    stepped(model, inputs, dt)
    weights = torch.load(found / f"{kind} {wrapper}")
    assert weights.keys() == start.keys()
    for name, value in model.named_parameters():
        torch.testing.assert_close(weights[name], value.detach(), rtol=1e-10, atol=1e-12, msg=name)
    moved = [name for name, value in weights.items() if not torch.equal(value, start[name])]
    assert len(moved) > len(start) / 2
