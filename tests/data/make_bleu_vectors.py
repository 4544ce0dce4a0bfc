#!/usr/bin/env python3
"""Writes bleu_vectors.json: what sacreBLEU 2.6.0 gives for many segments and settings. Needs `pip install sacrebleu`."""
import json
import os
import random

import sacrebleu
from sacrebleu.metrics import BLEU

WORDS = ("the The cat's sat, on mat. 3.14 1,000-2,000 U.S.-based (approx.) \"test\" &amp;lt; &quot; <skipped> l’été c’est "
         "«\u00a0oui\u202f» : ; ! ? 10€ $5 état—déjà…vu É ÀÇ x_y a/b [z] {k} 7--8 .5 5., naïve\u3000日本。語 ٣٫٤ ½ №5 + = | ~ ^ ` "
         "😀 \u200bzw ІВАН ΑΒΓΔ").split(" ")


def sentence(rng, low, high):
    return " ".join(rng.choice(WORDS) for _ in range(rng.randint(low, high)))


def noisy(rng, text):
    words = [w for w in text.split(" ") if rng.random() > 0.15]
    for _ in range(rng.randint(0, 2)):
        words.insert(rng.randint(0, len(words)), rng.choice(WORDS))
    return " ".join(words)


def corpus(seed, segments, references, low, high):
    rng = random.Random(seed)
    refs = [[sentence(rng, low, high) for _ in range(references)] for _ in range(segments)]
    hyps = [noisy(rng, alternatives[rng.randrange(references)]) for alternatives in refs]
    streams = [[alternatives[r] for alternatives in refs] for r in range(references)]
    runs = []
    for tokenizer in ("13a", "intl", "none", "char"):
        for smoothing in ("exp", "floor", "add-k", "none"):
            for lowercase, order, effective in ((False, 4, False), (True, 4, True), (False, 2, False), (True, 6, True)):
                bleu = BLEU(tokenize=tokenizer, smooth_method=smoothing, lowercase=lowercase, max_ngram_order=order,
                            effective_order=effective, force=True)
                score = bleu.corpus_score(hyps, streams)
                signature = str(bleu.get_signature()).replace("version:" + sacrebleu.__version__, "version:tessera-0.1.0")
                runs.append(dict(tokenizer=tokenizer, smoothing=smoothing, lowercase=lowercase, max_order=order,
                                 effective_order=effective, score=score.score, hypothesis_length=score.sys_len,
                                 reference_length=score.ref_len, signature=signature))
    return dict(hypotheses=hyps, references=refs, runs=runs)


def main():
    rng = random.Random(7)
    tokenized = {}
    for name in ("13a", "intl", "char"):
        tokenize = BLEU(tokenize=name).tokenizer
        texts = [sentence(rng, 1, 25) for _ in range(60)]
        tokenized[name] = [[text, " ".join(tokenize(text.rstrip()).split())] for text in texts]
    corpora = [corpus(1, 20, 1, 5, 25), corpus(2, 10, 3, 3, 15), corpus(3, 5, 2, 1, 3), corpus(4, 1, 1, 4, 4),
               corpus(5, 3, 1, 1, 2)]
    path = os.path.join(os.path.dirname(__file__), "bleu_vectors.json")
    with open(path, "w", encoding="utf-8") as out:
        json.dump(dict(made_with="sacrebleu " + sacrebleu.__version__, tokenized=tokenized, corpora=corpora), out,
                  ensure_ascii=False, indent=None, separators=(",", ":"))


if __name__ == "__main__":
    main()
