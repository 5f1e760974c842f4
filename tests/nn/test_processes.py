"""Layers in threads, in forked and spawned processes, and next to DataLoader workers."""

import os
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import pytest
import torch

import remanence as rm

INPUTS = torch.linspace(-1, 1, 5 * 3 * 4).view(5, 3, 4)


def trained(layer, inputs=INPUTS):
    output, _ = layer(inputs)
    return [output, *torch.autograd.grad(output.square().sum(), layer.parameters())]


@pytest.mark.parametrize("engine", ["auto", "cpu", "loop"])
def test_threads_share_a_layer(engine):
    layer = rm.LSTM(4, 8, gate="fast", engine=engine)
    expected, wrong = trained(layer), []

    def work():
        for _ in range(5):
            found = trained(layer)
            wrong.extend(one for one, other in zip(found, expected, strict=True) if not torch.equal(one, other))

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


COMMON = """
import os, sys
import torch
from torch.utils.data import DataLoader, Dataset
import remanence as rm

inputs = torch.linspace(-1, 1, 5 * 3 * 4).view(5, 3, 4)

class Numbers(Dataset):
    def __len__(self): return 6
    def __getitem__(self, index): return torch.full((4,), float(index))

class Features(Numbers):
    def __init__(self, layer): self.layer = layer
    def __getitem__(self, index):
        with torch.no_grad():
            return self.layer(inputs + index)[0]

def trained(layer):
    output, _ = layer(inputs)
    return [output.detach(), *torch.autograd.grad(output.square().sum(), layer.parameters())]

def loaded(data, context):
    return torch.cat(list(DataLoader(data, 2, num_workers=2, multiprocessing_context=context, timeout=60)))
"""
CASES = {
    "a forked child, where torch has one thread": """
        torch.set_num_threads(1)
        layer = rm.LSTM(4, 8, gate="fast")
        expected = trained(layer)
        child = os.fork()
        if child == 0:
            same = all(map(torch.equal, trained(layer), expected))
            trained(rm.GRU(4, 8, gate="softsign"))  # compiles kernels of its own
            os._exit(0 if same else 1)
        assert os.waitpid(child, 0)[1] == 0
        assert all(map(torch.equal, trained(layer), expected))
    """,
    "forked workers that make data, after a layer was used": """
        layer = rm.LSTM(4, 8, gate="fast")
        trained(layer)
        assert loaded(Numbers(), "fork")[:, 0].tolist() == [0, 1, 2, 3, 4, 5]
        trained(layer)
    """,
    "forked workers that run a layer, where torch has one thread": """
        torch.set_num_threads(1)
        layer = rm.LSTM(4, 8, gate="fast")
        trained(layer)
        expected = torch.stack([Features(layer)[index] for index in range(6)])
        assert torch.equal(loaded(Features(layer), "fork"), expected)
    """,
    "new workers that run a layer, whatever ran before": """
        layer = rm.LSTM(4, 8, gate="fast")
        trained(layer)
        expected = torch.stack([Features(layer)[index] for index in range(6)])
        torch.testing.assert_close(loaded(Features(layer), "spawn"), expected)
    """,
}


@pytest.mark.long
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
@pytest.mark.parametrize("case", CASES)
def test_processes(case, tmp_path):
    body = textwrap.indent(textwrap.dedent(CASES[case]), "    ")
    script = tmp_path / "script.py"
    script.write_text(f'{COMMON}\nif __name__ == "__main__":\n{body}\n')
    environment = os.environ | {"PYTHONPATH": str(Path(rm.__file__).parents[1])}
    done = subprocess.run(
        [sys.executable, script], capture_output=True, text=True, timeout=180, env=environment, check=False
    )
    assert done.returncode == 0, done.stderr
