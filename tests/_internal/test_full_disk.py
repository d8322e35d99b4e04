"""A full disk: writes fail half way, and earlier checkpoints and cache entries stay intact."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("resource")  # not on Windows

SCRIPT = str(Path(__file__).with_name("full_disk.py"))
OWN_MOUNTS = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c"]
SMALL_DISK = 'mount -t tmpfs -o size=1m none "$0"'


def on_a_limit(folder):
    return [sys.executable, SCRIPT, str(folder), "limit"]


def on_a_small_disk(folder):
    """A disk in the mount namespace of the process, removed when the process ends."""
    can_mount = (
        shutil.which("unshare")
        and not subprocess.run([*OWN_MOUNTS, SMALL_DISK, str(folder)], capture_output=True, check=False).returncode
    )
    if not can_mount:
        pytest.skip("this system lets no ordinary user mount a disk")
    return [*OWN_MOUNTS, f'{SMALL_DISK} && exec "$1" "$2" "$0" disk', str(folder), sys.executable, SCRIPT]


@pytest.mark.parametrize(
    ("command", "messages"),
    [
        (on_a_limit, ("File too large", "disk I/O error")),
        (on_a_small_disk, ("No space left on device", "database or disk is full")),
    ],
)
def test_what_is_kept_survives_and_all_goes_on(tmp_path, command, messages):
    done = subprocess.run(command(tmp_path), capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    for task, words in {"learn": "no checkpoint could be written", "measure": "can no longer be written"}.items():
        full, later = result[f"{task} on a full disk"], result[f"{task} later"]
        assert [words in output and any(message in output for message in messages) for output in full["told"]] == [
            True
        ]  # once
        assert full["right"]
        assert full["same"]  # the same files with the same content
        assert later == {"told": [], "right": True, "same": False}
    assert result["files"] == ["kept", "state", "state.before"]
