#!/usr/bin/env python3
"""Tests of scripts/corpus on small texts: what each reader must not lose or leave in."""
import os
import struct
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "scripts", "corpus"))
import build_corpus  # noqa: E402
import ddtp  # noqa: E402
import html_pairs  # noqa: E402
import lm_text  # noqa: E402
import man_pairs  # noqa: E402
import mo_pairs  # noqa: E402
import text  # noqa: E402


class Text(unittest.TestCase):
    def test_no_break_spaces_stay_where_french_wants_them(self):
        self.assertEqual(text.clean("Qui\u00a0?  Les\u00a0«\u00a0mots\u202f»  :\n trois\u00a0 mots", "fr"),
                         "Qui\u00a0? Les «\u00a0mots\u00a0» : trois mots")
        self.assertEqual(text.clean(" a\u00a0b\u00ad\u200bc\x07 ", "en"), "a bc")

    def test_sentences(self):
        self.assertEqual(text.sentences("One. Two e.g. Three! «\u00a0Quatre\u00a0?\u00a0» Cinq. six"),
                         ["One.", "Two e.g. Three!", "«\u00a0Quatre\u00a0?\u00a0»", "Cinq. six"])

    def test_filter(self):
        self.assertTrue(text.good("the small house", "la petite maison"))
        self.assertFalse(text.good("house", "la maison"))
        self.assertFalse(text.good("the small house", "the small house"))
        self.assertFalse(text.good("use the tool for this thing now", "use the tool for this thing maintenant"))
        self.assertFalse(text.good("one two", "un deux trois quatre cinq six sept huit neuf"))
        self.assertFalse(text.good("0x17 = 23 + {4}", "0x17 = 23 + {5}"))
        self.assertFalse(text.good("a safe state", "en toute sÃ©curitÃ©"))

    def test_unequal_splits_stay_whole(self):
        self.assertEqual(text.pairs_of("A cat sat. It ran.", "Un chat courait. Il dormait."),
                         [("A cat sat.", "Un chat courait."), ("It ran.", "Il dormait.")])
        self.assertEqual(text.pairs_of("A cat sat. It ran.", "Un chat était là et courait."),
                         [("A cat sat. It ran.", "Un chat était là et courait.")])


class Descriptions(unittest.TestCase):
    def test_records_and_marks(self):
        content = ("Package: x\nDescription-md5: 1\nDescription-fr: un outil\n Première ligne\n suite\u22c5:\n  * un\n    deux\n"
                   "  - trois\n .\n Fin.\n\nPackage: y\n")
        found = list(ddtp.records(content, "fr"))
        self.assertEqual([record[:3] for record in found], [("x", "1", "un outil")])
        self.assertEqual(ddtp.units(found[0][3]),
                         [["P", "Première ligne suite\u00a0:"], ["L", "un deux"], ["L", "trois"], [".", ""], ["P", "Fin."]])

    def test_other_structure_falls_back_to_blocks(self):
        english, french = ["a", " * b", ".", "c"], ["A B", ".", "C"]
        self.assertEqual(ddtp.paragraph_pairs(english, french), [("a b", "A B"), ("c", "C")])
        self.assertEqual(ddtp.paragraph_pairs(["a", ".", "b"], ["A"]), [])


class ManualPages(unittest.TestCase):
    def test_fonts_and_characters(self):
        self.assertEqual(man_pairs.unescape(r"\fBbold\fP \fI\,FILE\/\fP \f[CB]x\f[] \f(CWy\fR c\-d\ e \(em \[u00E9] \s-1Z\s0 \e"),
                         "bold FILE x y c-d\u00a0e — é Z \\")
        self.assertIsNone(man_pairs.unescape(r"\*(lq\n(PI"))

    def test_blocks(self):
        page = ('.TH X 1\n.SH NAME\nx \\- do\n.SH TEXT\nThe\n.BR open (2)\ncall "is" \\\nshort.\n.PP\nSecond.\n.TP\n.B \\-a\nShow\nall.\n'
                ".nf\ncode here\n.fi\nAfter.\n.SH LAST\nend\n")
        self.assertEqual(man_pairs.Page(page).sections[1],
                         [["text", 'The open(2) call "is" short.'], ["text", "Second."], ["tag", "-a"], ["text", "Show all."],
                          ["pre", "(lines)"], ["text", "After."]])
        with self.assertRaises(man_pairs.Unreadable):
            man_pairs.Page(".Dd today\n.Sh NAME\n")

    def test_pairs_skip_the_translators_section(self):
        english = ".SH NAME\nx \\- a tool\n.SH TEXT\nIt opens all files.\n"
        french = ".SH NOM\nx \\- un outil\n.SH TEXTE\nIl ouvre tous les fichiers.\n.SH TRADUCTION\nmerci\n"
        self.assertEqual(list(man_pairs.page_pairs(english, french)),
                         [("x - a tool", "x - un outil"), ("It opens all files.", "Il ouvre tous les fichiers.")])


class Html(unittest.TestCase):
    def test_ids_and_platform_variants(self):
        content = ('<p id="a">Press <span class="switchinline" id="s"><span hidden="true" id="MAC1" class="MAC">Command</span>'
                   '<span hidden="true" id="default1">Ctrl<span class="e">+</span></span></span>A &amp; go</p><pre id="c">code</pre>'
                   '<ul><li id="b">outer<p id="d">inner</p></li></ul><script>x</script>')
        self.assertEqual([b[1:] for b in html_pairs.blocks(content.encode())],
                         [["a", "Press Ctrl+A & go"], ["b", "outer"], ["d", "inner"]])

    def test_prose(self):
        page = "<head><title>No, not this line of all.</title></head><p>This is <b>one</b> paragraph &mdash; of prose.</p><pre>a. b.</pre>"
        self.assertEqual([p for p in map(lm_text.prose, lm_text.html_paragraphs(page)) if p],
                         ["This is one paragraph — of prose."])
        pod = "=head1 X\n\nThe C<open> call, see L<perlfunc|perlfunc/open>, is B<I<very>> E<lt>old.\n\n  code();\n"
        self.assertEqual(list(lm_text.pod_paragraphs(pod)), ["The open call, see perlfunc, is very <old."])


class Catalogues(unittest.TestCase):
    def test_contexts_and_plurals(self):
        entries = [(b"", b"header"), (b"menu\x04_Open a file", b"_Ouvrir un fichier"), (b"one file\0%d files", b"un fichier\0%d fichiers")]
        head, body, at = [], b"", 28 + 16 * len(entries)
        for side in (0, 1):
            for entry in entries:
                head += [len(entry[side]), at + len(body)]
                body += entry[side] + b"\0"
        content = struct.pack("<7I", 0x950412de, 0, len(entries), 28, 28 + 8 * len(entries), 0, 0)
        content += struct.pack(f"<{len(head)}I", *head) + body
        self.assertEqual(list(mo_pairs.messages(content)),
                         [("_Open a file", "_Ouvrir un fichier"), ("one file", "un fichier"), ("%d files", "%d fichiers")])


class Splits(unittest.TestCase):
    def test_a_sentence_stands_in_one_split(self):
        documents = {}
        for number in range(2000):
            documents.setdefault(build_corpus.split_of(f"ddtp:{number}"), f"ddtp:{number}")
        self.assertEqual(set(documents), {"train", "dev", "test"})
        rows = [(documents["train"], "Same  Sentence", "x"), (documents["dev"], "same sentence", "y"),
                (documents["test"], "SAME sentence", "z"), (documents["train"], "other", "o"), (documents["train"], "Other", "p")]
        found = build_corpus.divided(rows)
        self.assertEqual([len(found[split]) for split in ("train", "dev", "test")], [1, 0, 1])
        self.assertEqual(found["train"][0][2], "o")
        self.assertEqual(build_corpus.split_of("gcc:gcc-12"), "train")


if __name__ == "__main__":
    unittest.main()
