"""Package descriptions and their translations by the Debian description translation project, from apt's own lists."""
import re

import debs
import text

_BULLET = re.compile(r"^\s*(?:[*+o•·–−-]|\d+[.)])\s+")
_DOT_FOR_NO_BREAK = "\u22c5"  # how many translators type a no-break space


def records(content, language):
    """Yields (package, md5, synopsis, body lines)."""
    marker = f"Description-{language}:"
    if language == "fr":
        content = content.replace(_DOT_FOR_NO_BREAK, "\u00a0")
    for block in content.split("\n\n"):
        package = md5 = synopsis = None
        body = []
        for line in block.split("\n"):
            if line.startswith("Package:"):
                package = line[8:].strip()
            elif line.startswith("Description-md5:"):
                md5 = line[16:].strip()
            elif line.startswith(marker):
                synopsis = line[len(marker):].strip()
            elif line.startswith(" ") and synopsis is not None:
                body.append(line[1:])
        if package and md5 and synopsis is not None:
            yield package, md5, synopsis, body


def units(body):
    """The body as (mark, text): '.' a separator, 'P' a paragraph, 'L' a list item or preformatted lines."""
    found = []
    for line in body:
        if line.strip() == ".":
            found.append([".", ""])
            continue
        bullet = _BULLET.match(line)
        indented = line.startswith((" ", "\t"))
        last = found[-1] if found else [".", ""]
        if bullet and (indented or line[:2] in ("* ", "- ", "+ ", "• ")):
            found.append(["L", line[bullet.end():]])
        elif indented and last[0] == "L" or not indented and last[0] == "P":
            last[1] += " " + line.strip()
        else:
            found.append(["L" if indented else "P", line.strip()])
    return found


def paragraph_pairs(english, french):
    """Pairs by position when the marks agree, else dot-separated blocks when their number agrees."""
    en, fr = units(english), units(french)
    if [mark for mark, _ in en] == [mark for mark, _ in fr]:
        return [(a[1], b[1]) for a, b in zip(en, fr) if a[0] != "."]
    blocks = []
    for side in (en, fr):
        joined, current = [], []
        for mark, content in side + [[".", ""]]:
            if mark == ".":
                joined.append(" ".join(current))
                current = []
            else:
                current.append(content)
        blocks.append(joined)
    return list(zip(*blocks)) if len(blocks[0]) == len(blocks[1]) else []


def pairs(cache):
    """Yields (document, English, French)."""
    english = {}
    for path in debs.lists(cache, "en"):
        for package, md5, synopsis, body in records(debs.read_list(path), "en"):
            english.setdefault(md5, (synopsis, body))
    for path in debs.lists(cache, "fr"):
        for package, md5, synopsis, body in records(debs.read_list(path), "fr"):
            if md5 not in english or "<trans>" in synopsis or any("<trans>" in line for line in body):
                continue
            source, source_body = english[md5]
            for en, fr in [(source, synopsis)] + paragraph_pairs(source_body, body):
                for pair in text.pairs_of(en, fr):
                    yield ("ddtp:" + package, *pair)


def paragraphs(cache):
    """Yields (document, English paragraph) of every description, translated or not."""
    for path in debs.lists(cache, "en"):
        for package, _, _, body in records(debs.read_list(path), "en"):
            for mark, content in units(body):
                if mark == "P":
                    yield "ddtp:" + package, content
