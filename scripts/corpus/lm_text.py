"""English prose paragraphs from manuals, for language modelling."""
import html
import re

import ddtp
import debs
import text

PACKAGES = ["linux-doc-6.1", "python3.11-doc", "anarchism", "perl-doc", "postgresql-doc-15", "git-doc"]

_DROPPED = re.compile(r"<(head|script|style|pre|nav)\b.*?</\1\s*>|<!--.*?-->", re.S | re.I)
_BLOCK_TAG = re.compile(r"</?(?:p|li|dd|dt|td|th|tr|table|ul|ol|dl|div|section|blockquote|h[1-6]|br|hr|body)\b[^>]*>", re.I)
_TAG = re.compile(r"<[^>]+>", re.S)
_POD_CODE = re.compile(r"[A-Z]<<+ (.*?) >>+|[BCEFILSXZ]<([^<>]*)>", re.S)
_POD_ENTITIES = {"lt": "<", "gt": ">", "verbar": "|", "sol": "/"}
_PROSE_CHARACTER = re.compile(r"[A-Za-z ]")  # English is what is wanted, and some manuals hold translations
_END = re.compile(r"(?:[.!?:][\"”’')\]]*|\])$")


def prose(paragraph):
    """The cleaned paragraph, or None unless it reads like prose."""
    paragraph = text.clean(paragraph, "en")
    if len(paragraph.split()) < 6 or len(paragraph) > 20000 or not _END.search(paragraph):
        return None
    return paragraph if len(_PROSE_CHARACTER.findall(paragraph)) >= 0.85 * len(paragraph) else None


def html_paragraphs(content):
    for block in _BLOCK_TAG.split(_DROPPED.sub(" ", content)):
        yield html.unescape(_TAG.sub("", block))


def pod_paragraphs(content):
    def plain(match):
        inside = match.group(1) if match.group(1) is not None else match.group(2)
        if match.group().startswith("E<"):
            return _POD_ENTITIES.get(inside, "")
        return "" if match.group()[0] in "XZ" else inside.split("|")[0]

    for paragraph in content.split("\n\n"):
        if paragraph and not paragraph.startswith(("=", " ", "\t")):
            for _ in range(3):  # formatting codes nest
                paragraph = _POD_CODE.sub(plain, paragraph)
            yield paragraph


def paragraphs(cache):
    """Yields (document, paragraph)."""
    wanted = lambda path: path.endswith((".html", ".htm", ".pod")) and "/_sources/" not in path and "/translations/" not in path
    for package in PACKAGES:
        for path, content in debs.files(cache, package, wanted):
            split = pod_paragraphs if path.endswith(".pod") else html_paragraphs
            for paragraph in split(content.decode("utf-8", "replace")):
                yield f"{package}:{path}", paragraph
    yield from ddtp.paragraphs(cache)


def lines(cache):
    """Yields (document, line) of prose."""
    for document, paragraph in paragraphs(cache):
        line = prose(paragraph)
        if line:
            yield document, line
