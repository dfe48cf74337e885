"""The tools of `bench_user`: coregw, and programs that a person might use instead."""

from __future__ import annotations

import compileall
import os
import shutil
import signal
import subprocess
import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path

import coregw

__all__ = ["TOOLS", "Coregw", "Tool"]


class Tool(ABC):
    """One tool with a repository of its own, in a folder that does not exist yet. Every step runs processes."""

    name: str
    program: str
    has_again = True
    """Whether adding an unchanged tree again is another job than the first time."""

    def __init__(self, folder: Path, tree: Path) -> None:
        folder.mkdir()
        self.folder = folder
        self.tree = tree
        self.prepare()

    @classmethod
    def missing(cls) -> str | None:
        """Why it cannot be measured; None if it can."""
        return None if shutil.which(cls.program) else f"{cls.program} is not installed"

    @classmethod
    def version(cls) -> str:
        """The first line of what the program says of itself."""
        argument = "version" if cls.program == "restic" else "--version"
        return subprocess.run(
            [cls.program, argument], check=False, stdout=subprocess.PIPE, text=True
        ).stdout.splitlines()[0]

    def prepare(self) -> None:  # noqa: B027 - most tools need nothing
        """Make an empty repository; not measured."""

    @abstractmethod
    def add(self) -> None:
        """Store the tree."""

    @abstractmethod
    def get(self, destination: Path) -> None:
        """Restore the tree into a new folder."""

    def restored(self, destination: Path) -> Path:
        """Where the tree is after `get`."""
        return destination

    def close(self) -> None:  # noqa: B027
        """Stop what `prepare` has started."""

    def run(self, *command: str | Path, environ: Mapping[str, str] | None = None) -> str:
        """Run a program, which has to succeed, and return its output."""
        variables = os.environ | {"HOME": str(self.folder)} | dict(environ or {})
        ran = subprocess.run(command, check=False, capture_output=True, text=True, env=variables)
        if ran.returncode:
            raise SystemExit(f"{self.name}: exit code {ran.returncode}: {ran.stderr}")
        return ran.stdout


class Coregw(Tool):
    """``coregw add`` and ``coregw get``, with a gateway with default settings in a process of its own."""

    name, program = "coregw", sys.executable

    def prepare(self) -> None:
        # As pip does for an installed package: a run must not compile 80 modules, whatever this environment says.
        compileall.compile_dir(Path(coregw.__file__).parent, quiet=2)
        command = [sys.executable, "-m", "coregw", "serve", "--port", "0", "--set", "log_level=error"]
        self.gateway = subprocess.Popen(
            [*command, "--data", self.folder / "data"], stdout=subprocess.PIPE, text=True, process_group=0
        )
        assert self.gateway.stdout is not None
        self.url = "http://" + self.gateway.stdout.readline().rpartition("/")[2].strip()
        self.root = ""

    def add(self) -> None:
        self.root = self.coregw("add", self.tree).strip()

    def get(self, destination: Path) -> None:
        self.coregw("get", self.root, destination)

    def close(self) -> None:
        self.gateway.send_signal(signal.SIGTERM)
        self.gateway.wait()

    def coregw(self, *arguments: str | Path) -> str:
        command = Path(sys.executable).with_name("coregw")
        environ = {"COREGW_GATEWAY": self.url, "XDG_CACHE_HOME": str(self.folder / "cache")}
        return self.run(command, *arguments, environ=environ)


class Restic(Tool):
    """``restic backup`` into a local repository with default settings, and ``restic restore``."""

    name = program = "restic"

    def prepare(self) -> None:
        self.restic("init")

    def add(self) -> None:
        self.restic("backup", "--quiet", self.tree)

    def get(self, destination: Path) -> None:
        self.restic("restore", "--quiet", "latest", "--target", destination)

    def restored(self, destination: Path) -> Path:
        return destination / self.tree.relative_to("/")

    def restic(self, *arguments: str | Path) -> None:
        environ = {"RESTIC_PASSWORD": "bench", "RESTIC_CACHE_DIR": str(self.folder / "cache")}
        self.run("restic", "--repo", self.folder / "repository", *arguments, environ=environ)


class Casync(Tool):
    """``casync make`` with a store of chunks, and ``casync extract``."""

    name = program = "casync"

    def add(self) -> None:
        self.run("casync", "make", f"--store={self.folder / 'store'}", self.folder / "index.caidx", self.tree)

    def get(self, destination: Path) -> None:
        self.run("casync", "extract", f"--store={self.folder / 'store'}", self.folder / "index.caidx", destination)


class Git(Tool):
    """``git add`` and ``git commit`` with a work tree elsewhere, and ``git clone``."""

    name = program = "git"

    def prepare(self) -> None:
        self.git("init", "--quiet")

    def add(self) -> None:
        self.git("add", "--all")
        who = ("-c", "user.name=bench", "-c", "user.email=bench@localhost")
        self.git(*who, "commit", "--quiet", "--allow-empty", "--message=tree")

    def get(self, destination: Path) -> None:
        self.run("git", "clone", "--quiet", "--no-local", self.folder / "repository", destination)

    def git(self, *arguments: str) -> None:
        self.run("git", f"--git-dir={self.folder / 'repository'}", f"--work-tree={self.tree}", *arguments)


class Rsync(Tool):
    """``rsync -a`` to another folder, and back."""

    name = program = "rsync"

    def add(self) -> None:
        self.run("rsync", "-a", f"{self.tree}/", self.folder / "copy")

    def get(self, destination: Path) -> None:
        self.run("rsync", "-a", f"{self.folder / 'copy'}/", destination)


class Copy(Tool):
    """``cp -r`` to another folder, and back."""

    name, program, has_again = "cp -r", "cp", False

    def add(self) -> None:
        self.run("cp", "-r", self.tree, self.folder / "copy")

    def get(self, destination: Path) -> None:
        self.run("cp", "-r", self.folder / "copy", destination)


class Tar(Tool):
    """``tar`` into an archive, and out of it."""

    name, program, has_again = "tar", "tar", False

    def add(self) -> None:
        self.run("tar", "-cf", self.folder / "archive.tar", "-C", self.tree, ".")

    def get(self, destination: Path) -> None:
        destination.mkdir()
        self.run("tar", "-xf", self.folder / "archive.tar", "-C", destination)


TOOLS: tuple[type[Tool], ...] = (Coregw, Restic, Casync, Git, Rsync, Copy, Tar)
