"""Pairs from HTML manuals: LibreOffice help, whose elements carry ids, and DocBook pages, which are aligned by position."""
import difflib
import re
from html.parser import HTMLParser

import debs
import text

_BLOCKS = {"p", "h1", "h2", "h3", "h4", "h5", "h6", "li", "td", "th", "dt"}
_HIDDEN = {"script", "style", "head", "pre"}


class BlockParser(HTMLParser):
    """Collects the text of block elements; an inner block ends the outer one's text. Of the platform variants that
    LibreOffice hides in one sentence ("switchinline") only the default, or else the first, is kept."""

    def __init__(self):
        super().__init__(convert_charrefs=True)
        self.blocks = []     # [tag, id, text]
        self._open = []      # indices into blocks, or None for an element without a block
        self._skip = 0
        self._spans = []     # of the open spans: None, a switch's list of variants, or ("variant", switch)
        self._texts = []

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        if tag in _HIDDEN:
            self._skip += 1
        elif tag in _BLOCKS:
            self.blocks.append([tag, attributes.get("id"), ""])
            self._open.append(len(self.blocks) - 1)
        elif tag == "span":
            kind = attributes.get("class") or ""
            if kind == "switchinline":
                self._spans.append({"variants": []})
            elif self._spans and isinstance(self._spans[-1], dict) and "variants" in self._spans[-1]:
                variant = {"default": (attributes.get("id") or "").startswith("default"), "text": ""}
                self._spans[-1]["variants"].append(variant)
                self._spans.append(variant)
            else:
                self._spans.append(None)
        elif tag == "br":
            self.handle_data(" ")

    def handle_startendtag(self, tag, attributes):
        if tag == "br":
            self.handle_data(" ")

    def handle_endtag(self, tag):
        if tag in _HIDDEN:
            self._skip = max(0, self._skip - 1)
        elif tag in _BLOCKS:
            while self._open:
                if self.blocks[self._open.pop()][0] == tag:
                    break
        elif tag == "span" and self._spans:
            span = self._spans.pop()
            if span is not None and "variants" in span and span["variants"]:
                chosen = next((v for v in span["variants"] if v["default"]), span["variants"][0])
                self.handle_data(chosen["text"])

    def handle_data(self, data):
        if self._skip or not self._open:
            return
        for span in reversed(self._spans):
            if span is not None:
                if "text" in span:
                    span["text"] += data
                return
        self.blocks[self._open[-1]][2] += data


def blocks(content):
    parser = BlockParser()
    parser.feed(content.decode("utf-8", "replace"))
    parser.close()
    return parser.blocks


def libreoffice_pairs(cache):
    """Same file name and same element id in both languages."""
    def read(package, language):
        root = f"usr/share/libreoffice/help/{language}/text/"
        found = {}
        for path, content in debs.files(cache, package, lambda p: p.startswith(root) and p.endswith(".html")):
            found[path[len(root):-len(".html")]] = {b[1]: b[2] for b in blocks(content) if b[1] and b[2].strip()}
        return found

    english, french = read("libreoffice-help-en-us", "en-US"), read("libreoffice-help-fr", "fr")
    for name in sorted(english.keys() & french.keys()):
        for element, en in english[name].items():
            if element in french[name]:
                for pair in text.pairs_of(en, french[name][element]):
                    yield ("lohelp:" + name, *pair)


def debian_reference_pairs(cache):
    """Chapters of the Debian reference: blocks in order, by the longest common sequence of tags."""
    def read(language):
        suffix = f".{language}.html"
        found = {}
        for path, content in debs.files(cache, "debian-reference-" + language, lambda p: p.endswith(suffix)):
            found[path.rsplit("/", 1)[1][:-len(suffix)]] = [b for b in blocks(content) if b[2].strip()]
        return found

    numbering = re.compile(r"^(?:Chapter|Chapitre|Table|Tableau|Appendix|Annexe)?\s*[\dA-Z]+(?:\.\d+)*\.\s+")
    english, french = read("en"), read("fr")
    for name in sorted(english.keys() & french.keys()):
        en, fr = english[name], french[name]
        matcher = difflib.SequenceMatcher(None, [b[0] for b in en], [b[0] for b in fr], autojunk=False)
        for start, other, size in matcher.get_matching_blocks():
            for a, b in zip(en[start:start + size], fr[other:other + size]):
                for pair in text.pairs_of(numbering.sub("", a[2].strip()), numbering.sub("", b[2].strip())):
                    yield ("dref:" + name, *pair)
