#!/usr/bin/env python3
"""The size ledger: lines per layer, longest files and functions. Fails above 800 lines a file or 100 a function,
reports above 400 and 40."""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
FILE_LIMIT, FUNCTION_LIMIT = 800, 100


def functions(text):
    """(first line, length) of functions that start in column 0, by their closing brace in column 0."""
    lines, start = text.splitlines(), None
    for number, line in enumerate(lines, 1):
        if start is None and re.match(r"^[A-Za-z].*\)[^;]*\{$", line) and not line.startswith(("namespace", "struct", "class", "enum")):
            start = number
        elif start is not None and line.startswith("}"):
            yield start, number - start + 1
            start = None


def main():
    layers, files, longest, comments = {}, [], [], {}
    for folder in ("include", "src", "tools", "tests", "examples", "benchmarks"):
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix not in (".h", ".cpp"):
                continue
            text = path.read_text()
            count = text.count("\n")
            name = "/".join(path.relative_to(ROOT).parts[:2]) if folder == "src" else folder
            layers[name] = layers.get(name, 0) + count
            comments[name] = comments.get(name, 0) + len(re.findall(r"^\s*//", text, re.M))
            files.append((count, str(path.relative_to(ROOT))))
            longest += [(length, f"{path.relative_to(ROOT)}:{first}") for first, length in functions(text)]
    for name, count in layers.items():
        print(f"{count:7d} lines {100 * comments[name] // max(count, 1):3d} % comments  {name}")
    print(f"{sum(layers.values()):7d} lines in all")
    failed = False
    for kind, entries, report, limit in (("file", files, 400, FILE_LIMIT), ("function", longest, 40, FUNCTION_LIMIT)):
        over = sorted((e for e in entries if e[0] > report), reverse=True)
        print(f"{len(over)} {kind}s over {report} lines" + "".join(f"\n  {n:5d} {where}" for n, where in over[:8]))
        failed = failed or any(n > limit for n, _ in over)
    if failed:
        print(f"too long: the limits are {FILE_LIMIT} lines a file and {FUNCTION_LIMIT} a function")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
