#!/usr/bin/env python3
"""Checks that every include follows the layers (ARCHITECTURE.md): arrow = may include, transitive; nothing else may.
Public headers belong to the layer that implements them and include only the standard library and each other."""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
MAY = {
    "base": [], "lang": ["base"], "comm": ["base"], "ops": ["lang"], "grad": ["ops"], "spmd": ["lang"],
    "exec": ["spmd", "comm"], "nn": ["ops"], "models": ["nn"], "io": ["lang"], "data": ["lang"],
    "train": ["exec", "grad", "models", "io", "data"],
}
# Layer of each public header; a header that is missing here is an error.
HEADERS = {
    "error": "base", "dtype": "base", "random": "base", "box": "base", "version": "base",
    "dim": "lang", "attrs": "lang", "graph": "lang", "op": "lang", "array": "lang",
    "ops": "ops", "grad": "grad", "layout": "spmd", "program": "spmd", "explain": "spmd", "session": "exec",
    "nn": "nn", "optimizer": "nn", "models": "models", "config": "models",
    "checkpoint": "io", "safetensors": "io", "event_log": "io",
    "data": "data", "tokenizer": "data", "metrics": "data", "train": "train", "decode": "train", "bench": "train",
}
INCLUDE = re.compile(r'^\s*#\s*include\s+(?:"([^"]+)"|<([^>]+)>)', re.M)


def allowed(layer):
    seen, todo = set(), [layer]
    while todo:
        name = todo.pop()
        if name not in seen:
            seen.add(name)
            todo += MAY[name]
    return seen


def layer_of(include):
    """The layer that an include path belongs to, or None for a foreign header."""
    if include.startswith("tessera/"):
        return HEADERS.get(pathlib.PurePath(include).stem, "?")
    first = include.split("/")[0]
    return first if first in MAY else None


def check(path, layer, faults, public):
    for match in INCLUDE.finditer(path.read_text()):
        include = match.group(1) or match.group(2)
        target = layer_of(include)
        where = f"{path.relative_to(ROOT)}: includes {include}"
        if public and target is None and ("." in include or "/" in include):
            faults.append(f"{where}: public headers include only the standard library and tessera/")
        elif public and target is not None and not include.startswith("tessera/"):
            faults.append(f"{where}: a private header")
        elif target == "?":
            faults.append(f"{where}: scripts/check_layers.py knows no layer for it")
        elif target is not None and target not in allowed(layer):
            faults.append(f"{where}: layer {layer} may not use {target}")


def main():
    faults = []
    for layer in MAY:
        for path in sorted((ROOT / "src" / layer).rglob("*")):
            if path.suffix in (".h", ".cpp"):
                check(path, layer, faults, public=False)
    for path in sorted((ROOT / "include" / "tessera").glob("*.h")):
        if path.stem == "tessera":
            continue  # the umbrella header
        layer = HEADERS.get(path.stem)
        if layer is None:
            faults.append(f"{path.relative_to(ROOT)}: scripts/check_layers.py knows no layer for it")
        else:
            check(path, layer, faults, public=True)
    print("\n".join(faults) if faults else "layers: every include follows the rule")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
