#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks what the compiler cannot: arrows between parts, file sizes, SPDX lines, reasons of NOLINT, README paths.

Run with --self-test (done first on every run), it feeds itself one violation of each rule and
expects to see it, so that the gate is known to turn red.
"""

import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CODE = {".h", ".cpp", ".cu", ".cuh", ".py"}
FOLDERS = {"scheduler", "runtime", "kernels", "bindings", "tests", "bench", "docker", "docs"}
FORBIDDEN_NAMES = {"util", "utils", "helper", "helpers", "common", "misc"}

# Which parts (the first folder below plimsoll/) the files of a place may include. Public headers
# of bindings/torch stand directly in plimsoll/ and are written as "".
BASE = {"base"}
SCHEDULER = BASE | {"graph", "order", "rewrite"}
RUNTIME = SCHEDULER | {"plan", "pool", "device", "exec", "kernels"}
ALLOWED = [
    (r"scheduler/(include/plimsoll|src)/base/", BASE),
    (r"scheduler/(include/plimsoll|src)/graph/", BASE | {"graph"}),
    (r"scheduler/(include/plimsoll|src)/order/", BASE | {"graph", "order"}),
    (r"scheduler/", SCHEDULER),
    (r"kernels/", BASE | {"kernels"}),
    (r"runtime/(include/plimsoll|src)/plan/", SCHEDULER | {"plan"}),
    (r"runtime/(include/plimsoll|src)/device/", SCHEDULER | {"device"}),
    (r"runtime/(include/plimsoll|src)/pool/", SCHEDULER | {"device", "pool"}),
    (r"runtime/", RUNTIME),
    (r"bindings/|bench/", RUNTIME | {"", "models", "data", "train", "explain"}),
    (r"tests/(base|graph|order|order_verify|rewrite)/", SCHEDULER),
    (r"tests/(plan|pool|device|exec|kernels)/", RUNTIME),
    (r"tests/", RUNTIME | {"", "models", "data", "train", "explain"}),
]
REASONED_NOLINT = re.compile(r"NOLINT(NEXTLINE|BEGIN)?\([a-z, -]+\): \S|NOLINTEND\([a-z, -]+\)")
TORCH_INCLUDE = re.compile(r'#include\s+[<"](ATen|c10|torch)/')
INCLUDE = re.compile(r'#include\s+"plimsoll/((?:[a-z_]+/)*)[a-z0-9_]+\.h"')


def check_file(path, text):
    """Yields what is wrong with one source file."""
    lines = text.splitlines()
    if not any("SPDX-License-Identifier: Apache-2.0" in line for line in lines[:3]):
        yield f"{path}: no SPDX-License-Identifier line at the top"
    if Path(path).stem in FORBIDDEN_NAMES:
        yield f"{path}: the name says nothing; name the concept"
    limit = 250 if path.endswith(".h") and "/include/" in path else 600
    if len(lines) > limit:
        yield f"{path}: {len(lines)} lines, at most {limit}"
    if path.endswith(".h") and "#pragma once" not in text:
        yield f"{path}: no #pragma once"
    allowed = next((parts for place, parts in ALLOWED if re.match(place, path)), None)
    for number, line in enumerate(lines, 1):
        match = INCLUDE.match(line)
        if match and allowed is not None:
            part = match.group(1).split("/")[0]
            if part not in allowed:
                yield f"{path}:{number}: includes plimsoll/{match.group(1)}, an arrow that points up"
        if "NOLINT" in line and not path.endswith(".py") and not REASONED_NOLINT.search(line):
            yield f"{path}:{number}: a NOLINT without its check or its reason"
        if TORCH_INCLUDE.match(line) and not re.match(
                r"bindings/(torch|models|train|cli|python)/|tests/(torch|models|train|cases|simgpu|cli|package|python)/|bench/", path):
            yield f"{path}:{number}: includes LibTorch outside of bindings"


def check_readme(path, text, root):
    """Yields the paths a README quotes that do not exist."""
    for quoted in re.findall(r"`([A-Za-z0-9_.\-]+(?:/[A-Za-z0-9_.\-]+)+/?)`", text):
        first = quoted.split("/")[0]
        if first in FOLDERS and not quoted.startswith("bench/results") and not (root / quoted).exists():
            yield f"{path}: quotes `{quoted}`, which does not exist"


def check_tree(root, files):
    problems = []
    for name in files:
        path = root / name
        if not path.is_file():
            continue
        if path.suffix in CODE or path.name == "CMakeLists.txt":
            problems += check_file(name, path.read_text(encoding="utf-8"))
        if path.suffix == ".md" and path.name == "README.md":
            problems += check_readme(name, path.read_text(encoding="utf-8"), root)
        top = name.split("/")[0]
        if "/" in name and not top.startswith(".") and top not in FOLDERS:
            problems.append(f"{name}: '{top}' is no folder of this project")
    return problems


def self_test():
    spdx = "// SPDX-License-Identifier: Apache-2.0\n#pragma once\n"
    violations = {
        "scheduler/src/graph/a.cpp": spdx + '#include "plimsoll/plan/layout.h"\n',
        "scheduler/src/graph/order_up.cpp": spdx + '#include "plimsoll/order/order.h"\n',
        "runtime/src/plan/b.cpp": spdx + "#include <ATen/ATen.h>\n",
        "tests/graph/c.cpp": spdx + '#include "plimsoll/pool/pool.h"\n',
        "runtime/src/pool/d.cpp": "int x;\n",
        "runtime/src/pool/util.h": spdx,
        "runtime/src/pool/quiet.cpp": spdx + "int X;  // NOLINT(readability-identifier-naming)\n",
        "runtime/src/pool/quieter.cpp": spdx + "int X;  // NOLINT\n",
        "runtime/include/plimsoll/pool/long.h": spdx + "\n" * 300,
        "runtime/src/pool/long.cpp": spdx + "\n" * 700,
        "scheduler/README.md": "see `scheduler/src/nothing.cpp`\n",
        "extra/e.py": "# SPDX-License-Identifier: Apache-2.0\n",
    }
    with tempfile.TemporaryDirectory() as folder:
        for name, text in violations.items():
            path = Path(folder) / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        problems = check_tree(Path(folder), list(violations))
    unseen = [name for name in violations if not any(p.startswith(name) for p in problems)]
    return [f"self-test: the violation in {name} was not seen" for name in unseen]


def main():
    files = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True,
                           check=False).stdout.splitlines()
    if not files:  # a source archive without git
        files = [str(p.relative_to(ROOT)) for p in ROOT.rglob("*") if p.is_file()
                 and p.relative_to(ROOT).parts[0] not in {"build", "install", ".git"}]
    problems = self_test() + check_tree(ROOT, files)
    for problem in problems:
        print(problem)
    print(f"layering: {len(problems)} problems in {len(files)} files")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
