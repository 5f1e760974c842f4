"""What ranks agree on, seen from one of them."""

import signal

import pytest
import torch

from remanence.training import Budget, Ranks
from remanence.training.interruption import Interruption

ENVIRONMENT = {
    "WORLD_SIZE": "2",
    "RANK": "0",
    "LOCAL_RANK": "0",
    "LOCAL_WORLD_SIZE": "2",
    "MASTER_ADDR": "localhost",
    "MASTER_PORT": "1",
}


class Others(Ranks):
    """The first of two ranks, of which the other has this number."""

    def __init__(self, number):
        super().__init__(0, 2)
        self.number = number

    def highest(self, number):
        return max(number, self.number)


def test_without_torchrun_there_is_one_process(monkeypatch):
    for size in (None, "1"):
        if size is None:
            monkeypatch.delenv("WORLD_SIZE", raising=False)
        else:
            monkeypatch.setenv("WORLD_SIZE", size)
        ranks = Ranks.join()
        assert (ranks.alone, ranks.first, ranks.size) == (True, True, 1)


def test_one_process_does_everything_by_itself():
    ranks, values = Ranks(), torch.randn(3)
    before = values.clone()
    assert ranks.told(lambda: 3) == ranks.alike(lambda: 3) == ranks.highest(3) == 3
    ranks.add_up(values)
    ranks.spread(values)
    ranks.leave()
    assert torch.equal(values, before)
    assert ranks.joined(values, [3], 0) is values
    with pytest.raises(KeyError):  # as it is, whatever it is
        ranks.told(lambda: {}["nothing"])


@pytest.mark.parametrize("missing", [name for name in ENVIRONMENT if name != "WORLD_SIZE"])
def test_half_of_what_torchrun_sets_is_refused(monkeypatch, missing):
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv(missing)
    with pytest.raises(ValueError, match=f"^expected WORLD_SIZE, .* as torchrun sets them, got no {missing}$"):
        Ranks.join()


def test_a_number_of_processes_that_is_none_is_refused(monkeypatch):
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("WORLD_SIZE", "two")
    with pytest.raises(ValueError, match=r"got WORLD_SIZE=two$"):
        Ranks.join()


def test_processes_have_no_gpu_of_their_choice():
    with pytest.raises(ValueError, match=r"^expected cpu or cuda under torchrun, .* got cuda:1$"):
        Ranks(0, 2).device("cuda:1")
    assert Ranks(1, 2).device("cpu") == torch.device("cpu")


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_processes_without_gpus_use_the_cpu():
    assert Ranks(1, 2).device(None) == torch.device("cpu")
    with pytest.raises(ValueError, match="torch sees no CUDA device"):
        Ranks(1, 2).device("cuda")


def test_a_process_for_which_there_is_no_gpu_is_refused(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    monkeypatch.setenv("LOCAL_RANK", "0")
    with pytest.raises(ValueError, match=r"^expected a GPU for each of 2 processes on a machine, got 1$"):
        Ranks(0, 2).device("cuda")


def test_a_signal_of_another_rank_stops_this_one_as_well():
    interruption = Interruption(Budget(), Others(1 + signal.SIGTERM))
    assert interruption.wanted("update")
    stopped = interruption.stop("here")
    assert stopped.reason.startswith("stopped by SIGTERM here")
    assert stopped.code == 143


def test_a_signal_of_another_rank_is_heard_when_all_is_done():
    assert Interruption(Budget(), Others(1 + signal.SIGINT)).signalled()
    assert not Interruption(Budget(), Others(0)).signalled()


def test_a_budget_that_is_spent_on_another_rank_stops_this_one_as_well():
    interruption = Interruption(Budget(1000), Others(1))
    assert interruption.wanted("update")
    assert interruption.stop("here").code == 0


def test_nobody_stops_without_a_reason():
    assert not Interruption(Budget(1000), Others(0)).wanted("update")
