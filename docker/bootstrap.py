#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Installs what a build of Plimsoll needs. The one script that people, images and CI share.

Two parts, each idempotent and silent when there is nothing to do:
  1. Debian packages (skipped, with a list of what is missing, where there is no apt or no root);
  2. a virtual environment in the user's cache folder with LibTorch, CMake and the tools at the
     exact versions and hashes of docker/lock/torch-VERSION.txt. The folder's name carries a hash
     of the lock file, so that every checkout with the same lock shares one environment.
Prints the environment's path on standard output and everything else on standard error.
"""

import argparse
import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = [
    "build-essential",
    "ca-certificates",
    "ccache",
    "dataset-fashion-mnist",
    "git",
    "libbenchmark-dev",
    "libcli11-dev",
    "libgmock-dev",
    "libgtest-dev",
    "libjemalloc2",
    "libmimalloc2.0",
    "libprotozero-dev",
    "libspdlog-dev",
    "liburing-dev",
    "nlohmann-json3-dev",
    "python3-dev",
    "python3-venv",
    "zlib1g-dev",
]

# What a wheel's build needs of these, and not to run.
HEADER_PACKAGES = ["libcli11-dev", "libfmt-dev", "libprotozero-dev", "libspdlog-dev", "nlohmann-json3-dev",
                   "zlib1g-dev"]


def say(text):
    print(f"bootstrap: {text}", file=sys.stderr, flush=True)


def fail(text):
    say(text)
    sys.exit(4)


def missing_packages():
    if shutil.which("dpkg-query") is None:
        say("this is not a Debian-like system: install the equivalents of " + " ".join(PACKAGES))
        return []
    query = subprocess.run(
        ["dpkg-query", "-W", "-f", "${Package} ${db:Status-Status}\n", *PACKAGES],
        capture_output=True, text=True, check=False)
    installed = {line.split()[0] for line in query.stdout.splitlines()
                 if line.endswith(" installed")}
    return [package for package in PACKAGES if package not in installed]


def install_packages():
    missing = missing_packages()
    if not missing:
        return
    prefix = []
    if os.geteuid() != 0:
        if shutil.which("sudo") is None:
            fail("not root and no sudo; ask an administrator to run: apt-get install -y "
                 + " ".join(missing))
        prefix = ["sudo"]
    say("installing Debian packages: " + " ".join(missing))
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for command in (["apt-get", "update", "-q"],
                    ["apt-get", "install", "-y", "-q", "--no-install-recommends", *missing]):
        run = subprocess.run([*prefix, *command], env=environment, stdout=sys.stderr, check=False)
        if run.returncode != 0:
            fail(f"'{' '.join(command)}' ended with {run.returncode}; mend that and run again")


def unpack_headers(folder):
    """Unpacks HEADER_PACKAGES below a folder, as anyone: nothing is installed."""
    if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
        fail("this is not a Debian-like system: install the equivalents of " + " ".join(HEADER_PACKAGES))
    say(f"unpacking {' '.join(HEADER_PACKAGES)} into {folder}")
    with tempfile.TemporaryDirectory() as scratch:
        own = ["-o", f"Dir::State={scratch}/state", "-o", f"Dir::Cache={scratch}/cache", "-o", "Debug::NoLocking=1"]
        (Path(scratch) / "state/lists/partial").mkdir(parents=True)
        (Path(scratch) / "cache/archives/partial").mkdir(parents=True)
        # The system's lists of packages, else, where it has none, lists of our own.
        for flags, update in (([], False), (own, True)):
            if update:
                subprocess.run(["apt-get", *flags, "update", "-q"], cwd=scratch, stdout=sys.stderr, check=False)
            download = ["apt-get", *flags, "download", "-q", *HEADER_PACKAGES]
            if subprocess.run(download, cwd=scratch, stdout=sys.stderr, check=False).returncode == 0:
                break
        else:
            fail("the packages cannot be had; install " + " ".join(HEADER_PACKAGES))
        for package in sorted(Path(scratch).glob("*.deb")):
            subprocess.run(["dpkg-deb", "-x", str(package), str(folder)], check=True)


def cache_folder():
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "plimsoll"


def locks():
    return sorted(path.stem.removeprefix("torch-") for path in (ROOT / "docker/lock").glob("torch-*.txt"))


def environment_path(torch):
    lock = ROOT / "docker/lock" / f"torch-{torch}.txt"
    if not lock.exists():
        fail(f"--torch {torch}: no lock file for this release; there is one for {', '.join(locks())}")
    digest = hashlib.sha256(lock.read_bytes() + sys.version.encode()).hexdigest()[:12]
    return cache_folder() / f"torch-{torch}-{digest}", lock


def make_environment(torch):
    path, lock = environment_path(torch)
    stamp = path / "complete"
    if stamp.exists():
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path.parent / f"{path.name}.lock", "w", encoding="utf-8") as guard:
        fcntl.flock(guard, fcntl.LOCK_EX)  # a second checkout waits instead of downloading again
        if stamp.exists():
            return path
        say(f"making the environment for LibTorch {torch} in {path} (5 GB, a few minutes)")
        shutil.rmtree(path, ignore_errors=True)
        steps = (
            [sys.executable, "-m", "venv", str(path)],
            [str(path / "bin/python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check",
             "--require-hashes", "--only-binary", ":all:", "-r", str(lock)],
        )
        for step in steps:
            run = subprocess.run(step, stdout=sys.stderr, check=False)
            if run.returncode != 0:
                shutil.rmtree(path, ignore_errors=True)
                fail(f"'{' '.join(step)}' ended with {run.returncode}; nothing half-made was kept")
        stamp.touch()
    return path


def make_real_packages(torch, environment):
    """Returns the folder with the packages of docker/lock/real-VERSION.txt, or None without one."""
    lock = ROOT / "docker/lock" / f"real-{torch}.txt"
    if not lock.exists():
        return None
    digest = hashlib.sha256(lock.read_bytes()).hexdigest()[:12]
    path = environment / f"real-{digest}"
    with open(environment / "real.lock", "w", encoding="utf-8") as guard:
        fcntl.flock(guard, fcntl.LOCK_EX)
        if (path / "complete").exists():
            return path
        say(f"installing the packages that tests/python/real trains into {path} (0.4 GB, a minute)")
        shutil.rmtree(path, ignore_errors=True)
        step = [str(environment / "bin/python"), "-m", "pip", "install", "--quiet",
                "--disable-pip-version-check", "--require-hashes", "--no-deps", "--only-binary", ":all:",
                "--target", str(path), "-r", str(lock)]
        if subprocess.run(step, stdout=sys.stderr, check=False).returncode != 0:
            shutil.rmtree(path, ignore_errors=True)
            fail(f"'{' '.join(step)}' failed; nothing half-made was kept")
        (path / "complete").touch()
    return path


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--torch", default="2.15.0", help="LibTorch release (default: %(default)s)")
    parser.add_argument("--real", action="store_true",
                        help="also the packages that tests/python/real trains; prints their folder second")
    parser.add_argument("--packages-only", action="store_true", help="Debian packages only")
    parser.add_argument("--headers", metavar="FOLDER",
                        help="only the libraries of headers, unpacked below FOLDER without root")
    options = parser.parse_args()
    if options.headers:
        unpack_headers(Path(options.headers))
        return
    if sys.version_info < (3, 11):
        fail(f"Python {sys.version.split()[0]} is too old: 3.11 or later is needed")
    environment_path(options.torch)
    install_packages()
    if not options.packages_only:
        environment = make_environment(options.torch)
        print(environment)
        if options.real:
            print(make_real_packages(options.torch, environment) or "")


if __name__ == "__main__":
    main()
