#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Sees the gates red: feeds clang-tidy's step, `./dev test` and .ci/run what they have to refuse, and to pass."""

import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CLEAN = "int twice(int n) { return 2 * n; }\n"
# One violation of each kind of check, by the name that a finding has to carry.
VIOLATIONS = {
    "bugprone-use-after-move": "#include <string>\n#include <utility>\nstd::size_t length(std::string text) {\n"
                               "  const std::string kept = std::move(text);\n"
                               "  return text.size() + kept.size();\n}\n",
    "performance-for-range-copy": "#include <string>\n#include <vector>\n"
                                  "std::size_t length(const std::vector<std::string>& all) {\n"
                                  "  std::size_t sum = 0;\n  for (const auto text : all) sum += text.size();\n  return sum;\n}\n",
    "readability-identifier-naming": "constexpr int wrong_limit = 3;\nint limit() { return wrong_limit; }\n",
    "readability-function-size": "void wait(volatile int& n) {\n" + "  n = n + 1;\n" * 61 + "}\n",
    "readability-function-cognitive-complexity":
        "int depth(int n) {\n" + "".join(f"  if (n > {i}) {{\n" for i in range(8)) + "  n = 0;\n" + "  }\n" * 8
        + "  return n;\n}\n",
    "cppcoreguidelines-special-member-functions": "struct Half {\n  ~Half() { *place = 0; }\n  int* place;\n};\n",
}
# The verdict of ./dev lint, what ./dev test says and ends with; the last line that .ci/run owes.
RUNS = [
    (0, "3 passed, 0 failed", 0, "3 passed, 0 failed"),
    (0, "3 passed, 0 failed, 2 skipped", 0, "3 passed, 0 failed, 2 skipped"),
    (0, "2 passed, 1 failed", 1, "2 passed, 1 failed"),
    (1, "3 passed, 0 failed, 2 skipped", 0, "3 passed, 1 failed, 2 skipped"),
    (70, "2 passed, 1 failed", 1, "2 passed, 2 failed"),
    (0, "12/40 Test #12: A.Test ... Passed", 137, "0 passed, 1 failed"),
    (0, "", 70, "0 passed, 1 failed"),
    (0, "", 0, "0 passed, 1 failed"),
    (0, "3 passed, 0 failed", 139, "3 passed, 1 failed"),
]
# What `cmake --build` ends with, what ctest prints and ends with; the last line that ./dev test owes.
TESTS = [
    (0, "1/1 Test #1: A.Test ......   Passed    0.01 sec", 0, "1 passed, 0 failed"),
    (0, "1/1 Test #1: A.Test ......***Failed    0.01 sec", 8, "0 passed, 1 failed"),
    (0, "1/1 Test #1: A.Test ......   Passed    0.01 sec", 8, "1 passed, 1 failed"),
    (0, "", 0, "0 passed, 1 failed"),
    (1, "1/1 Test #1: A.Test ......   Passed    0.01 sec", 0, "0 passed, 1 failed"),
]


def write(path, text, mode=0o644):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    path.chmod(mode)


def last_line(run):
    return (run.stdout.splitlines() or [""])[-1]


def tidy(root):
    """Runs the step over a tree whose every source is in the compile database."""
    files = sorted(root.glob("scheduler/*.cpp"))
    entries = [{"directory": str(root), "file": str(f), "command": f"c++ -std=c++20 -c {f}"} for f in files]
    write(root / "build/compile_commands.json", json.dumps(entries))
    return subprocess.run([sys.executable, str(ROOT / "tests/tidy.py"), "--root", str(root),
                           "--build", str(root / "build"), "--cache", str(root / "clean")],
                          capture_output=True, text=True, check=False)


def check_tidy(root):
    """Yields what clang-tidy's step did not see, or saw where nothing is."""
    shutil.copy(ROOT / ".clang-tidy", root)
    write(root / "scheduler/clean.cpp", '#include "below.h"\n' + CLEAN)
    write(root / "scheduler/below.h", "inline int half(int n) { return n / 2; }\n")
    run = tidy(root)
    if run.returncode != 0:
        yield f"tidy: a clean source failed: {run.stdout}{run.stderr}"
    if "1 of them clean before" not in tidy(root).stdout:
        yield "tidy: a clean source was not remembered"
    write(root / "scheduler/below.h", "inline int HALF(int n) { return n / 2; }\n")
    for name, text in VIOLATIONS.items():
        write(root / f"scheduler/{name}.cpp", text)
    for attempt in ("first", "second"):
        run = tidy(root)
        if run.returncode == 0:
            yield f"tidy: passed every violation at the {attempt} attempt"
        if "scheduler/below.h" not in run.stdout:
            yield f"tidy: a header's violation was not seen at the {attempt} attempt"
        unseen = [name for name in VIOLATIONS if f"[{name}" not in run.stdout]
        yield from (f"tidy: {name} was not seen at the {attempt} attempt" for name in unseen)


def check_ci(root):
    """Yields each outcome of lint and tests of which .ci/run does not tell the truth."""
    (root / ".ci").mkdir()
    shutil.copy(ROOT / ".ci/run", root / ".ci/run")
    for lint, text, status, expected in RUNS:
        write(root / "dev", f"#!/bin/sh\n[ \"$1\" = lint ] && exit {lint}\necho '{text}'\nexit {status}\n", 0o755)
        run = subprocess.run([str(root / ".ci/run")], capture_output=True, text=True, check=False)
        if last_line(run) != expected or (run.returncode == 0) != (" 0 failed" in expected):
            yield f".ci/run: lint {lint}, tests '{text}' {status}: ended with {run.returncode}, '{last_line(run)}'"


def check_test(root):
    """Yields each outcome of a build and of ctest of which `./dev test` does not tell the truth."""
    shutil.copy(ROOT / "dev", root / "dev")
    environment = root / "environment"
    (environment / "lib/python3/site-packages").mkdir(parents=True)
    write(root / "docker/bootstrap.py", f"import sys\nprint('{environment}')\nif '--real' in sys.argv: print()\n")
    for build, text, status, expected in TESTS:
        write(environment / "bin/cmake", f"#!/bin/sh\n[ \"$1\" = --build ] && exit {build}\nexit 0\n", 0o755)
        write(environment / "bin/ctest", f"#!/bin/sh\necho '{text}'\nexit {status}\n", 0o755)
        run = subprocess.run([str(root / "dev"), "test"], capture_output=True, text=True, check=False)
        if last_line(run) != expected or (run.returncode == 0) != (" 0 failed" in expected):
            yield f"dev test: build {build}, ctest '{text}' {status}: ended with {run.returncode}, '{last_line(run)}'"


def main():
    problems = []
    for check in (check_ci, check_test, check_tidy):
        with tempfile.TemporaryDirectory() as folder:
            problems += check(Path(folder).resolve())
    for problem in problems:
        print(problem)
    print(f"gates: {len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
