"""The authors' package, ggml-ot, in a virtual environment of its own, as any other package to compare with."""

import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).resolve().parent / ".venv-ggml-ot"

# torch first and pinned: left to itself, pip may choose a build for ggml-ot that brings gigabytes
# of CUDA. Where the index has only such builds, point PIP_EXTRA_INDEX_URL at torch's CPU wheels.
STEPS = ["torch==2.13.0", "ggml-ot==0.9.94"]


def python() -> Path:
    """The interpreter of an environment that holds ggml-ot; made on the first call."""
    return environment(FOLDER, STEPS, "2 GB, some minutes")


def environment(folder: Path, steps: list[str], effort: str) -> Path:
    """The interpreter of a virtual environment in which these requirements are installed, one after the other."""
    interpreter = folder / "bin" / "python"
    # Written last, so that an installation that was interrupted is done again.
    complete = folder / "complete"
    wanted = "\n".join(steps) + "\n"
    if not complete.exists() or complete.read_text() != wanted:
        print(f"installing {', '.join(steps)} into {folder.name} (once; {effort})", file=sys.stderr)
        _run([sys.executable, "-m", "venv", "--clear", str(folder)])
        for requirement in steps:
            _run([str(interpreter), "-m", "pip", "install", "--quiet", *requirement.split()])
        complete.write_text(wanted)
    return interpreter


def _run(command):
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(
            f"the environment could not be made: {' '.join(command[1:])} "
            f"ended with {done.returncode}:\n{(done.stderr or done.stdout)[-2000:]}"
        )


if __name__ == "__main__":
    print(python())
