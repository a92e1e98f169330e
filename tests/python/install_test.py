# SPDX-License-Identifier: Apache-2.0
"""pip install into a fresh environment, with the newest supported torch and the oldest. Label real.

    ./dev test --label real --filter install        downloads 3 GB a release once, compiles for some minutes

The environments (5 GB each) are made below PLIMSOLL_INSTALL_FOLDER (/var/tmp) and deleted.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

# A few layers and AdamW, stock and in a session of a third of the peak, in one process.
SESSION = """
import hashlib, torch, plimsoll

def training(extent):
    torch.manual_seed(0)
    model = torch.nn.Sequential(*[torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.BatchNorm1d(256),
                                                      torch.nn.GELU(), torch.nn.Dropout(0.1)) for _ in range(8)])
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    x = torch.randn(256, 256)
    losses = []
    for _ in range(3):
        with extent():
            optimizer.zero_grad()
            loss = model(x).square().mean()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            losses.append(loss.item().hex())
    digest = hashlib.sha256()
    for value in (*model.state_dict().values(), torch.get_rng_state()):
        digest.update(value.contiguous().numpy().tobytes())
    return losses, digest.hexdigest()

import contextlib
torch.set_num_threads(2)
stock = training(contextlib.nullcontext)
with plimsoll.session("5MiB") as session:
    inside = training(session.step)
    report = session.report()
assert stock == inside, (stock, inside)
assert 0 < report.peak_bytes <= 5 << 20 and report.prefetched_bytes > 0, report
print("identical", torch.__version__, plimsoll.__version__)
"""


def run(command, **options):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False, **options)
    assert done.returncode == 0, f"{command}: {done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    return done.stdout


@pytest.fixture
def folder():
    path = Path(tempfile.mkdtemp(prefix="plimsoll-install-", dir=os.environ.get("PLIMSOLL_INSTALL_FOLDER", "/var/tmp")))
    yield path
    shutil.rmtree(path)


def in_(folder):
    """The environment variables of a shell in which nothing of this build is known."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PLIMSOLL", "PYTHON", "CMAKE"))}
    return {**kept, "PATH": f"{folder / 'bin'}:/usr/local/bin:/usr/bin:/bin", "VIRTUAL_ENV": str(folder)}


@pytest.mark.parametrize("release, headers", [("2.15.0", "installed"), ("2.11.0", "unpacked")])
def test_a_wheel_is_built_and_works_in_a_fresh_environment(release, headers, folder):
    # Not sys.executable, where that is itself an environment's.
    run([Path(sys.base_prefix) / "bin/python3", "-m", "venv", folder])
    python, variables = folder / "bin/python", in_(folder)
    run([python, "-m", "pip", "install", "-q", f"torch=={release}", "numpy"], env=variables)
    settings = ["-C", "cmake.define.PLIMSOLL_UNPACK_HEADERS=ON"] if headers == "unpacked" else []
    run([python, "-m", "pip", "install", "-q", *settings, ROOT / "bindings/python"], env=variables)

    where = {"cwd": folder, "env": variables}
    assert run([python, "-c", SESSION], **where).startswith(f"identical {release}")
    assert run([python, "-m", "plimsoll", "--version"], **where) == run(["plimsoll", "--version"], **where)
    trained = run([python, "-m", "plimsoll", "train", "mlp", "--steps", "2", "--batch", "4", "--against-stock",
                   "--budget", "70%", "--json", "-"], **where)
    assert '"identical": true' in trained

    other = folder / "other/torch"
    other.mkdir(parents=True)
    (other / "__init__.py").write_text("__version__ = '2.3.1'\n", encoding="utf-8")
    done = subprocess.run([python, "-c", "import plimsoll"], env={**variables, "PYTHONPATH": str(other.parent)},
                          capture_output=True, text=True, check=False)
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("ImportError: plimsoll") and release in last and "2.3.1" in last
