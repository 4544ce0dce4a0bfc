"""Pairs from compiled gettext catalogues. A catalogue knows no documents, so the builder keeps all of it in train."""
import re
import struct

import debs
import text

_MARKUP = re.compile(r"<[^<>]{1,80}>")


def messages(content):
    """Yields (msgid, msgstr) of a .mo file, plural forms apart and contexts removed."""
    order = "<" if content[:4] == b"\xde\x12\x04\x95" else ">"
    count, originals, translations = struct.unpack(order + "3I", content[8:20])
    for i in range(count):
        sides = []
        for table in (originals, translations):
            length, offset = struct.unpack_from(order + "2I", content, table + 8 * i)
            sides.append(content[offset:offset + length].decode("utf-8", "replace"))
        source = sides[0].split("\x04", 1)[-1].split("\0")
        target = sides[1].split("\0")
        if source[0]:
            yield source[0], target[0]
            if len(source) > 1 and len(target) > 1:
                yield source[-1], target[-1]


def pairs(cache, package, origin, accelerators):
    """`accelerators` are the characters that mark keyboard short cuts in menu texts of this package."""
    wanted = lambda path: "/fr/LC_MESSAGES/" in path and path.endswith(".mo")
    marks = re.compile("[" + re.escape(accelerators) + "]") if accelerators else None
    for path, content in sorted(debs.files(cache, package, wanted)):
        name = path.rsplit("/", 1)[1][:-len(".mo")]
        for en, fr in messages(content):
            left, right = en.split("\n\n"), fr.split("\n\n")
            for a, b in zip(left, right) if len(left) == len(right) else [(en, fr)]:
                if marks:  # menu texts; compiler messages keep theirs, where < and _ are code
                    a, b = (marks.sub("", _MARKUP.sub("", side)) for side in (a, b))
                for pair in text.pairs_of(a, b, least_words=3):
                    yield (f"{origin}:{name}", *pair)
