#!/usr/bin/env python3
"""Checks a built corpus: its files match the manifest, there are at least 130,000 pairs and 50 MB of text, and no document
and no source sentence stands in two splits. Usage: check_corpus.py [folder, default corpus]. Exit codes: 0 good, 1 bad,
77 no corpus there (so that a test can say SKIP)."""
import itertools
import json
import os
import sys

import debs
import text

LEAST_PAIRS = 130_000
LEAST_TEXT_BYTES = 50_000_000
SPLITS = ("train", "dev", "test")


def read(folder, name):
    with open(os.path.join(folder, name), encoding="utf-8", newline="\n") as file:
        return file.read().split("\n")[:-1]


def disjoint(what, sets, problems):
    for a, b in itertools.combinations(SPLITS, 2):
        common = sets[a] & sets[b]
        if common:
            problems.append(f"{len(common)} {what} stand in {a} and in {b}, for example {sorted(common)[0]!r}")


def check(folder, manifest):
    problems = []
    for name, output in manifest["outputs"].items():
        path = os.path.join(folder, name)
        if not os.path.exists(path) or debs.sha256(path) != output["sha256"]:
            problems.append(f"{name} is not the file that the manifest describes")
    if problems:
        return problems
    pairs = {split: list(zip(*(read(folder, f"{split}.{extension}") for extension in ("en", "fr", "docs")), strict=True))
             for split in SPLITS}
    total = sum(len(rows) for rows in pairs.values())
    if total < LEAST_PAIRS:
        problems.append(f"{total} pairs, but at least {LEAST_PAIRS} are promised")
    for split, rows in pairs.items():
        if split != "train" and len(rows) < 1000:
            problems.append(f"{split} has only {len(rows)} pairs")
        empty = sum(1 for en, fr, _ in rows if not en.strip() or not fr.strip() or en == fr)
        if empty:
            problems.append(f"{empty} pairs of {split} have an empty side or equal sides")
    disjoint("documents", {split: {row[2] for row in rows} for split, rows in pairs.items()}, problems)
    disjoint("source sentences", {split: {text.key(row[0]) for row in rows} for split, rows in pairs.items()}, problems)
    if "text" in manifest:
        size = sum(os.path.getsize(os.path.join(folder, f"lm/{split}.txt")) for split in SPLITS)
        if size < LEAST_TEXT_BYTES:
            problems.append(f"{size} bytes of text, but at least {LEAST_TEXT_BYTES} are promised")
        disjoint("text documents", {split: set(read(folder, f"lm/{split}.docs")) for split in SPLITS}, problems)
        disjoint("text lines", {split: set(map(text.key, read(folder, f"lm/{split}.txt"))) for split in SPLITS}, problems)
    return problems


def main():
    folder = sys.argv[1] if len(sys.argv) > 1 else "corpus"
    try:
        with open(os.path.join(folder, "manifest.json"), encoding="utf-8") as file:
            manifest = json.load(file)
    except FileNotFoundError:
        print(f"SKIP: no corpus in {folder}; make one with scripts/fetch_corpus.sh --out {folder}")
        sys.exit(77)
    problems = check(folder, manifest)
    for problem in problems:
        print("check_corpus:", problem)
    if not problems:
        print("corpus is good:", ", ".join(f"{split} {manifest['pairs'][split]['pairs']} pairs" for split in SPLITS),
              "with text" if "text" in manifest else "pairs only")
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
