#!/usr/bin/env python3
"""Writes src/data/unicode_tables.cpp from Python's own Unicode data: the classes and the lower-case mapping that BLEU needs."""
import os
import unicodedata

LIMIT = 0x110000


def ranges(letter):
    """Closed ranges of the code points whose general category begins with `letter`."""
    found, start = [], None
    for point in range(LIMIT + 1):
        inside = point < LIMIT and unicodedata.category(chr(point))[0] == letter
        if inside and start is None:
            start = point
        elif not inside and start is not None:
            found.append((start, point - 1))
            start = None
    return found


def lower_runs():
    """(first, last, step, delta): every step-th point of [first, last] becomes point + delta when lower-cased."""
    runs = []
    for point in range(LIMIT):
        lower = chr(point).lower()
        if len(lower) != 1 or ord(lower) == point:
            continue
        delta = ord(lower) - point
        if runs and runs[-1][3] == delta:
            first, last, step, _ = runs[-1]
            gap = point - last
            if gap <= 2 and (first == last or gap == step):
                runs[-1] = (first, point, gap, delta)
                continue
        runs.append((point, point, 1, delta))
    return runs


def rows(items, per_line):
    text = ["{" + ", ".join(f"{value:#x}" if abs(value) > 9 else str(value) for value in item) + "}" for item in items]
    return ",\n".join("    " + ", ".join(text[i:i + per_line]) for i in range(0, len(text), per_line))


def table(kind, name, text):
    return (f"static constexpr {kind} {name}Table[] = {{\n{text}}};\n"
            f"const std::span<const {kind}> {name}({name}Table);\n")


def main():
    path = os.path.join(os.path.dirname(__file__), "..", "src", "data", "unicode_tables.cpp")
    with open(path, "w", encoding="utf-8") as out:
        out.write(f"// Unicode {unicodedata.unidata_version} classes and lower-case runs. Written by scripts/unicode_tables.py; do not edit.\n")
        out.write('#include "data/unicode_tables.h"\n\nnamespace tessera::data {\n\n// clang-format off\n')
        for name, letter in (("kNumbers", "N"), ("kPunctuation", "P"), ("kSymbols", "S")):
            out.write(table("CodeRange", name, rows(ranges(letter), 6)) + "\n")
        out.write(table("LowerRun", "kLowerRuns", rows(lower_runs(), 4)))
        out.write("// clang-format on\n\n}  // namespace tessera::data\n")


if __name__ == "__main__":
    main()
