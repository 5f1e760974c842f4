"""What would be published: the source distribution is the repository, the wheel is the package, and it runs."""

from __future__ import annotations

import subprocess
import sys
import tarfile
import tempfile
import zipfile
from fnmatch import fnmatch
from pathlib import Path

ROOT = Path(__file__).parents[1]
MADE = {"PKG-INFO", "setup.cfg"}
"""What the builder adds."""


def main() -> None:
    """Look at what is in dist, and say what is wrong with it."""
    (source,), (wheel,) = (ROOT / "dist").glob("*.tar.gz"), (ROOT / "dist").glob("*.whl")
    with tarfile.open(source) as archive:
        packed = {name.partition("/")[2] for name in (member.name for member in archive if member.isfile())}
    with zipfile.ZipFile(wheel) as archive:
        installed = set(archive.namelist())
    tracked = repository()
    expect(f"{source.name} to hold every file of the repository", tracked - packed)
    expect(f"{source.name} to hold nothing else", {n for n in packed - tracked - MADE if ".egg-info/" not in n})
    package = {name.removeprefix("src/") for name in tracked if name.startswith("src/")}
    expect(f"{wheel.name} to hold every file of the package", package - installed)
    expect(f"{wheel.name} to hold nothing else", {n for n in installed - package if ".dist-info/" not in n})
    with tempfile.TemporaryDirectory() as folder:
        called(sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--target", folder, wheel)
        code = f"import sys; sys.path.insert(0, {folder!r}); import remanence; print(remanence.__file__)"
        place = called(sys.executable, "-c", code, cwd=folder).strip()
        expect("the installed package to be imported", set() if Path(folder) in Path(place).parents else {place})
    print(f"{source.name} and {wheel.name}: {len(packed)} and {len(installed)} files, complete")


def repository() -> set[str]:
    """Every file that git knows or would take; without git, all that .gitignore does not name."""
    try:
        return set(called("git", "ls-files", "--cached", "--others", "--exclude-standard", cwd=ROOT).splitlines())
    except (OSError, subprocess.CalledProcessError):
        ignored = [".git", *(line.rstrip("/") for line in (ROOT / ".gitignore").read_text("utf-8").split())]
        files = (path.relative_to(ROOT) for path in ROOT.rglob("*") if path.is_file())
        return {
            path.as_posix() for path in files if not any(fnmatch(part, name) for part in path.parts for name in ignored)
        }


def called(*words: object, cwd: Path | str | None = None) -> str:
    """What a command prints."""
    return subprocess.run([str(word) for word in words], cwd=cwd, check=True, capture_output=True, text=True).stdout


def expect(what: str, wrong: set[str]) -> None:
    """Stop if something is wrong."""
    if wrong:
        few = ", ".join(sorted(wrong)[:5])
        sys.exit(f"expected {what}, got {len(wrong)} that differ: {few}")


if __name__ == "__main__":
    main()
