#!/usr/bin/env python3
"""What a step costs beside its work, in instructions: the same number on a busy machine. Valgrind counts those of the
executor in tests/unit/exec_dispatch_test.cpp (20,000 ops on 64 elements).

  dispatch_test.py UNIT_TESTS
"""
import re
import shutil
import subprocess
import sys

OPS, LIMIT = 20_000, 800  # about 600 when this was written; a microsecond is some 2,500
SKIPPED = 77

if shutil.which("valgrind") is None:
    print("valgrind is not installed")
    sys.exit(SKIPPED)
result = subprocess.run(["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null",
                         "--toggle-collect=tessera::RankProgram::run(tessera::RunState&)",
                         sys.argv[1], "--gtest_filter=Dispatch.*"], text=True, capture_output=True)
collected = re.search(r"Collected : (\d+)", result.stderr)
if result.returncode != 0 or collected is None:
    sys.exit(result.stdout + result.stderr)
per_op = int(collected[1]) / OPS
print(f"{per_op:.0f} instructions an op, at most {LIMIT}")
sys.exit(0 if 100 < per_op <= LIMIT else 1)
