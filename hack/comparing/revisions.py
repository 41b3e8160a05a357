"""What a benchmark of this revision prints about another revision of topogate."""

import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

_ROOT: Final = Path(__file__).resolve().parents[2]

_PROGRAM: Final = """
import runpy, sys
old, new, module, *arguments = sys.argv[1:]
sys.path[:0] = [old]
import labeler, webhook
sys.path[0] = new
sys.argv = [module, *arguments]
runpy.run_module(module, run_name="__main__")
"""
"""Takes labeler and webhook from one folder, and everything else from the other."""


def output_at(revision: str, module: str, arguments: Sequence[str]) -> str:
    """The standard output of a module of `hack` that runs with the programs of another commit.

    The commit is checked out beside the working tree, and removed afterwards. Ends this program with a
    sentence if that commit has other names, so that the module cannot ask it.
    """
    with tempfile.TemporaryDirectory() as folder:
        old = Path(folder) / "revision"
        subprocess.run(
            ["git", "worktree", "add", "--quiet", "--detach", old, revision], cwd=_ROOT, check=True
        )
        try:
            command = [sys.executable, "-c", _PROGRAM, str(old), str(_ROOT), module, *arguments]
            done = subprocess.run(command, cwd=folder, stdout=subprocess.PIPE, text=True)
            if done.returncode:
                sys.exit(
                    f"The code of {revision} cannot be asked, see above. If a name is missing there, compare "
                    "from an older commit, which has the names of both."
                )
            return done.stdout
        finally:
            subprocess.run(["git", "worktree", "remove", "--force", old], cwd=_ROOT, check=True)
