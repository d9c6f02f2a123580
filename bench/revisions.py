"""Another revision of this tree in a folder of its own, with an environment of its own, for `--against`.

The folder is .bench/revisions/<commit>. It is made once and used again. Its environment is made by its own
tools/bootstrap.py, since its dependencies may differ from ours, with the Python that runs the benchmark.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from .course import ROOT, Contestant
from .peers import HOME, make_home

SETUP_SECONDS = 900
NEEDED = ("tools/bootstrap.py", "bench/adapters/holdfast.py", "src/holdfast")


class NoRevision(Exception):
    """The revision cannot be measured. The text is one line that says why."""


@dataclass(frozen=True, slots=True)
class Revision:
    """Whose code is measured: a name for people, the tree and the Python that runs it."""

    name: str
    tree: Path
    python: Path
    commit: str = ""

    def contestant(self, database: str) -> Contestant:
        """Holdfast of this revision. PYTHONPATH is set, so that one of the caller's cannot bring in other code."""
        return Contestant(
            "holdfast",
            "holdfast",
            database,
            self.python,
            environment={"PYTHONPATH": str(self.tree / "src")},
            tree=self.tree,
        )


def commit_of(asked: str, root: Path = ROOT) -> str:
    """The full hash of the commit that the name stands for."""
    top = git(root, "rev-parse", "--show-toplevel").stdout.decode().strip()
    if not top or Path(top).resolve() != root.resolve():
        raise NoRevision(f"--against needs a git clone, and {root} is not one")
    found = git(root, "rev-parse", "--verify", "--quiet", "--end-of-options", asked + "^{commit}")
    if found.returncode:
        raise NoRevision(f"there is no revision {asked!r} in this clone; `git log` shows those that it has")
    return found.stdout.decode().strip()


def git(root: Path, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    try:
        return subprocess.run(
            ["git", "-c", f"safe.directory={root}", "-C", str(root), *arguments], capture_output=True
        )
    except OSError as error:
        raise NoRevision(f"--against needs git: {error}") from error


def check_out(asked: str) -> Revision:
    """The revision, ready to be measured: its tree and its environment."""
    commit = commit_of(asked)
    make_home()
    tree = extract(commit, HOME / "revisions")
    for needed in NEEDED:
        if not (tree / needed).exists():
            raise NoRevision(f"revision {asked} cannot be measured: it has no {needed}")
    set_up(tree)
    name = commit[:7] if commit.startswith(asked) else f"{asked} ({commit[:7]})"
    return Revision(name, tree, tree / ".venv" / "bin" / "python", commit)


def extract(commit: str, home: Path, root: Path = ROOT) -> Path:
    """The commit's files in home/<commit>. They are put there with one rename, so a broken off attempt leaves none."""
    tree = home / commit
    if tree.exists():
        return tree
    home.mkdir(parents=True, exist_ok=True)
    new = Path(tempfile.mkdtemp(prefix="new-", dir=home))
    try:
        archive = git(root, "archive", "--format=tar", commit)
        if archive.returncode:
            raise NoRevision(f"git archive {commit[:7]} failed: {last_line(archive.stderr)}")
        subprocess.run(["tar", "-xf", "-", "-C", str(new)], input=archive.stdout, check=True)
        new.chmod(0o755)
        try:
            os.rename(new, tree)
        except OSError:
            if not tree.exists():  # if it does, another run has made it meanwhile
                raise
    finally:
        shutil.rmtree(new, ignore_errors=True)
    return tree


def set_up(tree: Path) -> None:
    """Make the tree's .venv. Its bootstrap knows by itself whether that was done before."""
    line = [sys.executable, "tools/bootstrap.py", "test"]
    try:
        done = subprocess.run(line, cwd=tree, capture_output=True, timeout=SETUP_SECONDS)
    except subprocess.TimeoutExpired:
        raise NoRevision(f"{tree}: tools/bootstrap.py took more than {SETUP_SECONDS} s") from None
    if done.returncode:
        raise NoRevision(f"{tree}: tools/bootstrap.py test failed: {last_line(done.stderr)}")


def last_line(said: bytes) -> str:
    lines = said.decode(errors="replace").strip().splitlines()
    return lines[-1].strip()[:200] if lines else "it said nothing"
