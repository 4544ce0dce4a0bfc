"""Pairs from manual pages: sections by position, then text blocks where both sides have the same sequence of kinds."""
import gzip
import re
import shlex

import debs
import text

ENGLISH_PACKAGES = ("manpages manpages-dev systemd coreutils util-linux e2fsprogs procps passwd mount login bsdutils bash tar "
                    "grep findutils sed gzip diffutils wget cron bzip2 file").split()
FRENCH_PACKAGES = ["manpages-fr", "manpages-fr-dev"]

_NAMED = {"em": "—", "en": "–", "hy": "-", "aq": "'", "dq": '"', "lq": "“", "rq": "”", "oq": "‘", "cq": "’", "bu": "•",
          "co": "©", "rg": "®", "ha": "^", "ti": "~", "ga": "`", "->": "→", "<-": "←", "Aq": "'", "mu": "×", "+-": "±",
          "Fo": "«", "Fc": "»", ">=": "≥", "<=": "≤", "rs": "\\", "sq": "□", "de": "°", "mc": "µ"}
_BACKSLASH = "\ue000"  # stands for a literal backslash until all escapes are resolved
_FONT = re.compile(r"\\f(?:\[[^\]]*\]|\(..|.)")
_SIZE = re.compile(r"\\s(?:\[[^\]]*\]|[+-]?\(\d\d|[+-]?\d)")
_CHARACTER = re.compile(r"\\(?:\*?\((..)|\*?\[([^\]]+)\])")
_NOTHING = re.compile(r"\\(?:[&/,:%|^c)dur]|m\[[^\]]*\]|[hv]'[^']*')")

_JOINED_FONTS = {"BR", "RB", "BI", "IB", "IR", "RI"}
_SPACED_FONTS = {"B", "I", "SM", "SB", "R"}
_BREAKS = {"PP", "P", "LP", "HP", "sp", "RS", "RE", "br", "in", "ce"}
_PRE_START = {"nf": "fi", "EX": "EE", "TS": "TE"}


class Unreadable(Exception):
    """The page uses what this reader does not know (mdoc, for example)."""


def unescape(line):
    """The line without font changes and with its characters; None when an unknown escape remains."""
    line = re.sub(r'\\[#"].*', "", line)
    line = line.replace("\\e", _BACKSLASH).replace("\\\\", _BACKSLASH)
    line = _SIZE.sub("", _FONT.sub("", line))

    def character(match):
        name = match.group(1) or match.group(2)
        if name.startswith("u") and re.fullmatch(r"u[0-9A-F]{4,5}", name):
            return chr(int(name[1:], 16))
        return _NAMED.get(name, match.group())

    line = _NOTHING.sub("", _CHARACTER.sub(character, line))
    line = line.replace("\\-", "-").replace("\\ ", "\u00a0").replace("\\~", "\u00a0").replace("\\0", " ").replace("\\'", "'")
    line = line.replace("\\`", "`").replace("\\.", ".")
    return None if "\\" in line else line.replace(_BACKSLASH, "\\")


def arguments(rest):
    """A macro's arguments; quotes group words."""
    try:
        return shlex.split(rest.replace("\\", "\\\\").replace("'", "\\'"), posix=True)
    except ValueError:
        return rest.split()


class Page:
    """Sections, each a list of blocks [kind, text]; kind is 'text', 'tag', 'heading' or 'pre'."""

    def __init__(self, content):
        self.sections = []
        self._kind = None     # of the block being collected, None between blocks
        self._tag_next = False
        self._until = None    # the macro that ends preformatted lines
        self._skip_until = None
        for line in content.replace("\\\n", "").split("\n"):
            self._line(line)
        self._end_block()

    def _end_block(self):
        self._kind = None

    def _add(self, content, kind="text"):
        if not self.sections or content is not None and not content.strip():
            return
        section = self.sections[-1]
        if self._kind == kind:
            section[-1][1] = None if content is None or section[-1][1] is None else section[-1][1] + " " + content.strip()
        else:
            section.append([kind, content if content is None else content.strip()])
            self._kind = kind

    def _text(self, content):
        if self._tag_next:
            self._end_block()
            self._add(content, "tag")
            self._end_block()
            self._tag_next = False
        else:
            self._add(content)

    def _line(self, line):
        macro, _, rest = line[1:].lstrip().partition(" ") if line.startswith((".", "'")) else ("", "", "")
        if self._skip_until:
            if macro == self._skip_until or line.startswith(self._skip_until):
                self._skip_until = None
        elif self._until:
            if macro == self._until:
                self._until = None
        elif not line.startswith((".", "'")):
            if line.strip():
                self._text(unescape(line))
            else:
                self._end_block()
        else:
            self._macro(macro, rest.strip())

    def _macro(self, macro, rest):
        if macro in ("Dd", "Sh", "so"):
            raise Unreadable(macro)
        if macro == "SH":
            self._end_block()
            self.sections.append([])
            self._tag_next = False
        elif macro == "SS":
            self._end_block()
            self._add(unescape(" ".join(arguments(rest))), "heading")
            self._end_block()
        elif macro in _PRE_START:
            self._end_block()
            self._add("(lines)", "pre")
            self._end_block()
            self._until = _PRE_START[macro]
        elif macro in ("TP", "TQ"):
            self._end_block()
            self._tag_next = True
        elif macro == "IP":
            self._end_block()
            if arguments(rest):
                self._add(unescape(arguments(rest)[0]), "tag")
                self._end_block()
        elif macro in _BREAKS:
            self._end_block()
        elif macro in _JOINED_FONTS:
            self._text(unescape("".join(arguments(rest))))
        elif macro in _SPACED_FONTS:
            if rest:
                self._text(unescape(" ".join(arguments(rest))))
        elif macro in ("UR", "MT"):
            self._add(None)  # a link whose text may be empty: the block is unusable
        elif macro in ("de", "ig"):
            self._skip_until = ".."


def read_pages(cache, packages, root):
    found = {}
    for package in packages:
        for path, content in debs.files(cache, package, lambda p: p.startswith(root) and p.endswith(".gz")):
            found.setdefault(path[len(root):-len(".gz")], content)
    return found


def page_pairs(english, french):
    en, fr = Page(english).sections, Page(french).sections[:-1]  # the last French section names the translators
    if len(en) != len(fr):
        return
    for a, b in zip(en, fr):
        if [block[0] for block in a] == [block[0] for block in b]:
            for (kind, left), (_, right) in zip(a, b):
                if kind in ("text", "heading") and left and right:
                    yield from text.pairs_of(left, right)


def pairs(cache):
    """Yields (document, English, French)."""
    english = read_pages(cache, ENGLISH_PACKAGES, "usr/share/man/man")
    french = read_pages(cache, FRENCH_PACKAGES, "usr/share/man/fr/man")
    for name in sorted(english.keys() & french.keys()):
        sides = [gzip.decompress(side[name]).decode("utf-8", "replace") for side in (english, french)]
        try:
            for pair in page_pairs(*sides):
                yield ("man:" + name, *pair)
        except Unreadable:
            continue
