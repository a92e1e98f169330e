#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs clang-tidy on the product's sources in a compile database, with as many processes as there are cores.

With --cache FOLDER a source that was found clean is not looked at again until something changes that its
verdict depends on: the headers of this tree that it includes, its command, the checks or the tool. Only
clean verdicts are kept, as empty files; headers of the system count as unchanging.
"""

import argparse
import contextlib
import functools
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

FOLDERS = ("scheduler", "runtime", "kernels", "bindings", "bench")
INCLUDE = re.compile(rb'^\s*#\s*include\s+"([^"]+)"', re.MULTILINE)
FINDING = re.compile(r"^(?=\S+:\d+:\d+: (?:error|warning): )", re.MULTILINE)
FORGET_AFTER_SECONDS = 60 * 24 * 3600


@functools.cache
def digest_and_includes(path):
    text = path.read_bytes()
    return hashlib.sha256(text).digest(), [name.decode() for name in INCLUDE.findall(text)]


@functools.cache
def resolve(name, folders):
    return next((Path(os.path.normpath(f / name)) for f in folders if (f / name).is_file()), None)


def fingerprint(entry, root, tool):
    """Returns a hash of all that the verdict depends on, the same in every checkout."""
    roots = tuple(Path(p) for p in re.findall(r"-I(\S+)", entry["command"]) if p.startswith(str(root)))
    known, todo = {}, [Path(entry["file"])]
    while todo:
        path = todo.pop()
        if path not in known:
            known[path], names = digest_and_includes(path)
            todo += filter(None, (resolve(name, (path.parent, *roots)) for name in names))
    total = hashlib.sha256(tool + entry["command"].replace(str(root), "").encode())
    for path in sorted(known):
        total.update(str(path.relative_to(root)).encode() + known[path])
    return total.hexdigest()


def stamps_of(entries, root, tool, cache):
    """Returns {source: the file that exists where it was found clean as it is}; forgets what is old."""
    cache.mkdir(parents=True, exist_ok=True)
    for old in cache.iterdir():
        with contextlib.suppress(FileNotFoundError):  # another checkout's lint forgets too
            if old.stat().st_mtime < time.time() - FORGET_AFTER_SECONDS:
                old.unlink()
    return {e["file"]: cache / fingerprint(e, root, tool) for e in entries}


def sources(build, root):
    """Returns the product's entries of the compile database; a source of two targets counts once."""
    entries = json.loads((build / "compile_commands.json").read_text(encoding="utf-8"))
    places = tuple(f"{root / folder}{os.sep}" for folder in FOLDERS)
    return list({e["file"]: e for e in entries if e["file"].startswith(places)}.values())


@functools.cache
def compiler_headers(compiler):
    """Returns the folder of the headers that a compiler brings along, omp.h for one, which clang-tidy lacks."""
    return subprocess.run([compiler, "-print-file-name=include"], capture_output=True, text=True,
                          check=True).stdout.strip()


def look_at(entry, build, clang_tidy):
    """Returns what is wrong with one source, a finding an element."""
    compiler = next(word for word in entry["command"].split() if not word.endswith("ccache"))
    run = subprocess.run([clang_tidy, "--quiet", "-p", str(build), f"--extra-arg=-idirafter{compiler_headers(compiler)}",
                          entry["file"]], capture_output=True, text=True, check=False)
    if run.returncode == 0:
        return []
    return [f for f in FINDING.split(run.stdout) if f.strip()] or [run.stderr.strip() or f"{entry['file']}: clang-tidy ended with {run.returncode} and said nothing"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=Path, required=True, help="a configured build folder")
    parser.add_argument("--root", type=Path, default=Path(__file__).resolve().parent.parent, help="the source tree")
    parser.add_argument("--cache", type=Path, help="remembers clean sources here")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    options = parser.parse_args()
    root = options.root.resolve()
    clang_tidy = shutil.which("clang-tidy", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    if clang_tidy is None:
        sys.exit("tidy: there is no clang-tidy on PATH")
    tool = b"".join(subprocess.run([clang_tidy, *flags], cwd=root, capture_output=True, check=True).stdout
                    for flags in (["--version"], ["--dump-config", str(root / "any.cpp")]))
    entries = sources(options.build, root)
    stamps = stamps_of(entries, root, tool, options.cache) if options.cache else {}
    todo = [e for e in entries if e["file"] not in stamps or not stamps[e["file"]].exists()]
    seen, faulty = set(), 0
    with ThreadPoolExecutor(options.jobs) as pool:
        try:
            for done, (entry, findings) in enumerate(
                    zip(todo, pool.map(lambda e: look_at(e, options.build, clang_tidy), todo)), 1):
                faulty += bool(findings)
                if not findings and stamps:
                    stamps[entry["file"]].touch()
                for finding in findings:
                    first_line = finding.splitlines()[0]
                    if first_line not in seen:  # every source that includes a header reports what is in it
                        print(finding.replace(f"{root}{os.sep}", "").rstrip(), flush=True)
                        seen.add(first_line)
                if sys.stderr.isatty():
                    end = "\n" if done == len(todo) else ""
                    print(f"\rtidy: {done}/{len(todo)}", end=end, file=sys.stderr, flush=True)
        except KeyboardInterrupt:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    print(f"tidy: {len(seen)} findings in {len(entries)} sources, {len(entries) - len(todo)} of them clean before")
    return 1 if faulty or not entries else 0


if __name__ == "__main__":
    sys.exit(main())
