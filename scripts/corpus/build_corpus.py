#!/usr/bin/env python3
"""Builds the corpus from the packages that scripts/fetch_corpus.sh downloaded. See that script for what it writes.

A document (package description, help file, manual page, chapter) goes to train, dev or test by a hash of its name, so
the split never changes when documents come or go. A source sentence stands in one split only: test keeps it, then dev,
then train; inside a split its first occurrence counts."""
import argparse
import hashlib
import json
import os
import shutil
import sys

import ddtp
import debs
import html_pairs
import lm_text
import man_pairs
import mo_pairs
import text

VERSION = 1
SPLITS = ("train", "dev", "test")
PERMILLE = {"dev": 20, "test": 20}
WITHOUT_DOCUMENTS = ("gcc:", "lo:")  # catalogues of messages: one file, so all of it stays in train

SOURCES = {
    "ddtp": ddtp.pairs,
    "lohelp": html_pairs.libreoffice_pairs,
    "man": man_pairs.pairs,
    "gcc": lambda cache: mo_pairs.pairs(cache, "gcc-12-locales", "gcc", ""),
    "lo": lambda cache: mo_pairs.pairs(cache, "libreoffice-l10n-fr", "lo", "~_"),
    "dref": html_pairs.debian_reference_pairs,
}
PAIR_PACKAGES = ["libreoffice-help-en-us", "libreoffice-help-fr", "gcc-12-locales", "libreoffice-l10n-fr", "debian-reference-en",
                 "debian-reference-fr"] + man_pairs.FRENCH_PACKAGES + man_pairs.ENGLISH_PACKAGES


def split_of(document):
    if document.startswith(WITHOUT_DOCUMENTS):
        return "train"
    number = int.from_bytes(hashlib.sha256(document.encode()).digest()[:8], "big") % 1000
    if number < PERMILLE["test"]:
        return "test"
    return "dev" if number < PERMILLE["test"] + PERMILLE["dev"] else "train"


def divided(rows):
    """{split: rows} of rows (document, source, ...), each source sentence once over all splits."""
    by_split = {split: [] for split in SPLITS}
    for row in rows:
        by_split[split_of(row[0])].append(row)
    seen = set()
    for split in ("test", "dev", "train"):
        kept = []
        for row in by_split[split]:
            sentence = text.key(row[1])
            if sentence not in seen:
                seen.add(sentence)
                kept.append(row)
        by_split[split] = kept
    return by_split


def write_lines(folder, name, lines, outputs):
    path = os.path.join(folder, name)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8", newline="\n") as file:
        for line in lines:
            file.write(line + "\n")
    outputs[name] = dict(sha256=debs.sha256(path), bytes=os.path.getsize(path))


def words(lines):
    return sum(len(line.split()) for line in lines)


def build_pairs(cache, folder, outputs):
    rows = []
    for name, source in SOURCES.items():
        before = len(rows)
        rows.extend(source(cache))
        print(f"  {name}: {len(rows) - before} pairs before removing repeated sentences", flush=True)
    counts = {}
    for split, kept in divided(rows).items():
        for column, extension in ((1, "en"), (2, "fr"), (0, "docs")):
            write_lines(folder, f"{split}.{extension}", (row[column] for row in kept), outputs)
        origins = {}
        for row in kept:
            origin = row[0].split(":", 1)[0]
            origins[origin] = origins.get(origin, 0) + 1
        counts[split] = dict(pairs=len(kept), documents=len({row[0] for row in kept}), origins=origins,
                             english_words=words(row[1] for row in kept), french_words=words(row[2] for row in kept))
    return counts


def build_lm(cache, folder, outputs):
    counts = {}
    for split, kept in divided(lm_text.lines(cache)).items():
        write_lines(folder, f"lm/{split}.txt", (row[1] for row in kept), outputs)
        write_lines(folder, f"lm/{split}.docs", (row[0] for row in kept), outputs)
        counts[split] = dict(lines=len(kept), documents=len({row[0] for row in kept}), words=words(row[1] for row in kept),
                             bytes=outputs[f"lm/{split}.txt"]["bytes"])
    return counts


def inputs(cache, pairs_only):
    """What the outputs are a function of: packages, apt's lists and these scripts."""
    packages = PAIR_PACKAGES + ([] if pairs_only else lm_text.PACKAGES)
    here = os.path.dirname(os.path.abspath(__file__))
    scripts = hashlib.sha256()
    for name in sorted(os.listdir(here)):
        if name.endswith(".py"):
            scripts.update(debs.sha256(os.path.join(here, name)).encode())
    lists = {os.path.basename(path): debs.sha256(path) for language in ("en", "fr") for path in debs.lists(cache, language)}
    if not any("Translation-fr" in name for name in lists):
        sys.exit(f"build_corpus: no Translation-fr list in {cache}/lists; run scripts/fetch_corpus.sh again")
    return dict(version=VERSION, pairs_only=pairs_only, scripts=scripts.hexdigest(), lists=lists,
                packages=[debs.describe(cache, package) for package in packages])


def current(folder, wanted):
    """True when the folder already holds what would be built; a corpus with the text serves when only pairs are asked."""
    try:
        with open(os.path.join(folder, "manifest.json"), encoding="utf-8") as file:
            manifest = json.load(file)
        old = manifest["inputs"]
        for name, output in manifest["outputs"].items():
            if os.path.getsize(os.path.join(folder, name)) != output["bytes"]:
                return False
    except (OSError, ValueError, KeyError):
        return False
    if old["pairs_only"] and not wanted["pairs_only"]:
        return False
    return all(old[key] == wanted[key] for key in ("version", "scripts", "lists")) and \
        all(package in old["packages"] for package in wanted["packages"])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cache", required=True, help="folder with debs/ and lists/")
    parser.add_argument("--out", required=True)
    parser.add_argument("--pairs-only", action="store_true", help="leave out lm/")
    parser.add_argument("--print-packages", action="store_true", help="only print the names of the packages that are needed")
    options = parser.parse_args()
    if options.print_packages:
        print("\n".join(PAIR_PACKAGES + ([] if options.pairs_only else lm_text.PACKAGES)))
        return
    wanted = inputs(options.cache, options.pairs_only)
    if current(options.out, wanted):
        print(f"{options.out} is up to date")
        return
    outputs = {}
    partial = os.path.join(options.out, "partial")
    shutil.rmtree(partial, ignore_errors=True)
    os.makedirs(partial)
    print("pairs:", flush=True)
    manifest = dict(inputs=wanted, outputs=outputs, pairs=build_pairs(options.cache, partial, outputs))
    if not options.pairs_only:
        print("text:", flush=True)
        manifest["text"] = build_lm(options.cache, partial, outputs)
    # The manifest goes last: a folder with a manifest is whole.
    manifest_path = os.path.join(options.out, "manifest.json")
    if os.path.exists(manifest_path):
        os.remove(manifest_path)
    for name in outputs:
        os.makedirs(os.path.dirname(os.path.join(options.out, name)), exist_ok=True)
        os.replace(os.path.join(partial, name), os.path.join(options.out, name))
    shutil.rmtree(partial)
    with open(manifest_path + ".partial", "w", encoding="utf-8") as file:
        json.dump(manifest, file, indent=1, ensure_ascii=False)
    os.replace(manifest_path + ".partial", manifest_path)
    for split in SPLITS:
        print(f"{split}: {manifest['pairs'][split]}")
        if "text" in manifest:
            print(f"lm/{split}: {manifest['text'][split]}")


if __name__ == "__main__":
    main()
