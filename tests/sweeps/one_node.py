"""A real SLURM of one node on this machine: its three daemons, in a folder of their own."""

from __future__ import annotations

import os
import secrets
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

NEEDED = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "scontrol", "squeue", "scancel")
CONFIGURATION = """
ClusterName=remanence
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket,cred_expire=5
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
MailProg=/bin/true
ReturnToService=2
SchedulerParameters=sched_interval=2
KillWait=10
NodeName={host} NodeAddr=127.0.0.1 CPUs={cores} State=UNKNOWN
PartitionName=all Nodes={host} Default=YES MaxTime=INFINITE State=UP
"""
PATIENCE = 60.0
"""Seconds after which a node that is not ready will never be."""


def missing() -> str | None:
    """Why there can be no SLURM here."""
    if os.getuid() != 0:
        return "only root may start SLURM"
    path = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
    absent = [name for name in NEEDED if shutil.which(name, path=path) is None]
    return f"{absent[0]} is not installed (Debian: slurm-wlm, munge)" if absent else None


def free_ports() -> list[int]:
    with socket.socket() as one, socket.socket() as two:
        for found in (one, two):
            found.bind(("127.0.0.1", 0))
        return [one.getsockname()[1], two.getsockname()[1]]


@contextmanager
def started(folder: Path) -> Iterator[dict[str, str]]:
    """Start the daemons, wait until the node is ready, and end them.

    Yields:
        What the environment of commands must have to find this SLURM.
    """
    for name in ("state", "spool"):
        (folder / name).mkdir()
    key, configuration = folder / "munge.key", folder / "slurm.conf"
    key.touch(mode=0o600)
    key.write_bytes(secrets.token_bytes(128))
    host = socket.gethostname().partition(".")[0]
    cores = os.cpu_count()
    configuration.write_text(CONFIGURATION.format(host=host, ports=free_ports(), folder=folder, cores=cores))
    (folder / "cgroup.conf").write_text("CgroupAutomount=no\n")
    own = {"SLURM_CONF": str(configuration), "PATH": f"{os.environ['PATH']}:/usr/sbin:/sbin"}
    files = [f"--{kind}-file={folder}/munge.{kind}" for kind in ("key", "pid", "log", "seed")]
    daemons = [
        ["munged", "--foreground", "--force", f"--socket={folder}/munge.socket", *files],
        ["slurmctld", "-D", "-f", str(configuration)],
        ["slurmd", "-D", "-f", str(configuration), "-N", host],
    ]
    environment = os.environ | own
    with ExitStack() as held:
        for words in daemons:
            log = held.enter_context((folder / f"{words[0]}.said").open("wb"))
            process = subprocess.Popen(words, env=environment, stdout=log, stderr=log)
            held.callback(_end, process)
            if words[0] == "munged":
                _until(lambda: (folder / "munge.socket").exists(), folder)
        _until(lambda: "idle" in _said(["sinfo", "--noheader", "--format=%T"], environment), folder)
        yield own
        _said(["scancel", "--user=root", "--signal=KILL", "--full"], environment)


def _said(words: list[str], environment: dict[str, str]) -> str:
    return subprocess.run(words, env=environment, capture_output=True, text=True, check=False).stdout


def _until(happened: object, folder: Path) -> None:
    limit = time.monotonic() + PATIENCE
    while not happened():  # type: ignore[operator]
        if time.monotonic() > limit:
            said = "\n".join(path.read_text()[-2000:] for path in [*folder.glob("*.said"), *folder.glob("slurm*.log")])
            raise AssertionError(f"expected SLURM to be ready within {PATIENCE:g} s, got: {said}")
        time.sleep(0.1)


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(20)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
