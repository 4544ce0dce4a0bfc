"""Cleaning of text, sentence splitting, and the filter that every pair must pass."""
import re

MAX_WORDS = {"en": 100, "fr": 120}

_SPACES = re.compile(r"[ \t\r\n\f\v]+")
_NO_BREAK = re.compile(r"[\u00a0\u202f]")
# French typography keeps a no-break space before these and inside guillemets; elsewhere it is layout.
_KEPT_NO_BREAK = re.compile(r"[ \u00a0\u202f]+(?=[:;!?»])|(?<=«)[ \u00a0\u202f]+")
_CONTROL = re.compile(r"[\x00-\x08\x0e-\x1f\x7f-\x84\x86-\x9f\u00ad\u200b\ufeff\ufffd]")
_ABBREVIATION = re.compile(r"(?:\b(?:e\.g|i\.e|etc|vs|cf|ex|p|M|Mr|Dr|St|No|Nos|no|fig|Fig|al|approx|resp|inc|Inc|Ltd)|\b[A-Z])\.$")
_SENTENCE_END = re.compile(r"(?<=[.!?…])(?:[\u00a0\u202f ]?[»”\")\]])?[ ]+(?=[«“\"(\[]?[\u00a0\u202f ]?[A-ZÀ-ÖØ-Þ0-9])")
_TWICE_ENCODED = re.compile(r"Ã[\u00a0-\u00bf\u0080-\u009f ]|â€|Â[«»\u00a0]")  # UTF-8 read as Latin-1
_LETTER_OR_SPACE = re.compile(r"[^\W\d_]|\s")


def clean(text, language):
    """One line without control characters or doubled spaces; no-break spaces only where French typography wants them."""
    text = _SPACES.sub(" ", _CONTROL.sub("", text)).strip(" \u00a0\u202f")
    if language != "fr":
        return _SPACES.sub(" ", _NO_BREAK.sub(" ", text)).strip()
    kept = [match.span() for match in _KEPT_NO_BREAK.finditer(text) if _NO_BREAK.search(match.group())]
    out, at = [], 0
    for start, end in kept:
        out.append(_NO_BREAK.sub(" ", text[at:start]) + "\u00a0")
        at = end
    out.append(_NO_BREAK.sub(" ", text[at:]))
    return _SPACES.sub(" ", "".join(out)).strip()


def sentences(paragraph):
    """Splits a cleaned paragraph after . ! ? before a capital or digit, but not after a usual abbreviation."""
    parts, start = [], 0
    for match in _SENTENCE_END.finditer(paragraph):
        if _ABBREVIATION.search(paragraph[start:match.start()]):
            continue
        end = match.end() - (len(match.group()) - len(match.group().rstrip(" ")))
        parts.append(paragraph[start:end].strip())
        start = match.end()
    parts.append(paragraph[start:].strip())
    return [part for part in parts if part]


def key(text):
    """What makes two source sentences the same one."""
    return " ".join(text.casefold().split())


def _mostly_words(text, share):
    return len(_LETTER_OR_SPACE.findall(text)) >= share * len(text)


def _untranslated(en, fr):
    """True when the French side is the English one but for a word or two."""
    english, french = key(en).split(), key(fr).split()
    if english == french:
        return True
    common = len(set(english) & set(french))
    return len(french) >= 5 and common >= 0.8 * len(set(french))


def good(en, fr, least_words=2):
    """The filter of the corpus: real, complete, comparable sides."""
    n, m = len(en.split()), len(fr.split())
    if n < least_words or m < 2 or n > MAX_WORDS["en"] or m > MAX_WORDS["fr"]:
        return False
    if max(n, m) > 3 * min(n, m) or max(n, m) > 2 * min(n, m) + 4:
        return False
    if not (_mostly_words(en, 0.7) and _mostly_words(fr, 0.7)) or _TWICE_ENCODED.search(fr):
        return False
    return not _untranslated(en, fr)


def pairs_of(en, fr, least_words=2):
    """The good pairs in one aligned paragraph: sentence by sentence where both sides split alike, else whole."""
    en, fr = clean(en, "en"), clean(fr, "fr")
    left, right = sentences(en), sentences(fr)
    if len(left) == len(right) > 1:
        lengths = [(len(a.split()), len(b.split())) for a, b in zip(left, right)]
        if all(max(n, m) <= 2 * min(n, m) + 4 for n, m in lengths):
            return [(a, b) for a, b in zip(left, right) if good(a, b, least_words)]
    return [(en, fr)] if good(en, fr, least_words) else []
