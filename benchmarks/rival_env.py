"""The authors' package, ggml-ot, in a virtual environment of its own."""

import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).resolve().parent / ".venv-ggml-ot"

# torch first and pinned: left to itself, pip may choose a build for ggml-ot that brings gigabytes
# of CUDA. Where the index has only such builds, point PIP_EXTRA_INDEX_URL at torch's CPU wheels.
STEPS = ["torch==2.13.0", "ggml-ot==0.9.94"]


def python() -> Path:
    """The interpreter of an environment that holds ggml-ot; made on the first call."""
    interpreter = FOLDER / "bin" / "python"
    # Written last, so that an installation that was interrupted is done again.
    complete = FOLDER / "complete"
    if not complete.exists():
        print(f"installing ggml-ot into {FOLDER.name} (once; 2 GB, some minutes)", file=sys.stderr)
        _run([sys.executable, "-m", "venv", "--clear", str(FOLDER)])
        for requirement in STEPS:
            _run([str(interpreter), "-m", "pip", "install", "--quiet", requirement])
        complete.write_text("\n".join(STEPS) + "\n")
    return interpreter


def _run(command):
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(
            f"the environment for ggml-ot could not be made: {' '.join(command[1:])} "
            f"ended with {done.returncode}:\n{(done.stderr or done.stdout)[-2000:]}"
        )


if __name__ == "__main__":
    print(python())
