"""Makes what all systems read: text, initial weights, batches."""
import json
import os

from . import drawn
from .environments import run_checked

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), '..', '..', '..'))


class NoCorpus(Exception):
    """There is no text to read."""


def text_files(source, lines, running, megabytes):
    """The beginning of a text as it is, for the tokenizer, and in lines of about 512 KiB, so that rows of tokens are full."""
    left, width = megabytes << 20, 0
    with open(source, encoding='utf-8') as text, open(lines, 'w', encoding='utf-8') as short, open(running, 'w', encoding='utf-8') as long:
        for line in text:
            if left <= 0:
                break
            words = line.strip()
            short.write(words + '\n')
            long.write(words + ' ')
            width += len(words) + 1
            left -= len(words) + 1
            if width > 1 << 19:
                long.write('\n')
                width = 0
        long.write('\n')


def need(path):
    if not os.path.exists(path):
        raise NoCorpus(f'{path} is missing: scripts/fetch_corpus.sh makes the corpus; --corpus names another folder')
    return path


def language_data(corpus, folder, vocab, kind, command, log):
    """Overrides that give a language model its text, in `folder`, and a tokenizer of so many pieces."""
    os.makedirs(folder, exist_ok=True)
    lines, running, tokenizer = (os.path.join(folder, name) for name in ('lines.txt', 'running.txt', f'{kind}_{vocab}.model'))
    corpus_text = need(os.path.join(corpus, 'lm', 'train.txt'))
    if not os.path.exists(tokenizer):
        text_files(corpus_text, lines, running, 20)
        run_checked([command, 'tokenizer', 'train', tokenizer + '.part', lines, '--vocab', str(vocab), '--kind', kind], log, 'tessera tokenizer train')
        os.replace(tokenizer + '.part', tokenizer)
    return [f'data.train.files={json.dumps([running])}', f'data.tokenizer={json.dumps(tokenizer)}', f'data.cache={json.dumps(os.path.join(folder, "cache"))}']


def drawn_config(config, folder):
    path = os.path.join(folder, 'drawn.toml')
    with open(path, 'w') as out:
        out.write(drawn.toml({**config, 'data': {**config['data'], 'pack': False}}))
    return path


def translation(corpus):
    """The demo's configuration with batches of one shape."""
    changes = ['data.batch_sentences=24', 'train.micro_batches=1']
    for key, name in (('files', 'train.en'), ('target_files', 'train.fr'), ('documents', 'train.docs')):
        changes.append(f'data.train.{key}={json.dumps([need(os.path.join(corpus, name))])}')
    for split in ('dev', 'test'):
        changes += [f'data.{split}.{key}=[]' for key in ('files', 'target_files', 'documents', 'origins')]
    return os.path.join(ROOT, 'configs', 'demo.toml'), changes


def job_of(name, model, options, folder, command, log):
    """What every process of a model is told; weights and batches are written for the first one. Raises NoCorpus, Skipped."""
    os.makedirs(folder, exist_ok=True)
    job = {'model': name, 'data': folder, 'ranks': options.ranks, 'batches': model.batches, 'sizes': model.sizes}
    if model.is_transformer:
        if name == 'translation':
            job['config'], changes = translation(options.corpus)
        else:
            job['config'] = drawn_config(model.config, folder) if model.config else os.path.join(ROOT, 'benchmarks', 'peers', 'lm.toml')
            # The text has too few likely pieces for a unigram model of the largest drawn vocabulary.
            pieces = (model.config['model']['vocab'], 'bpe') if model.config else (32000, 'unigram')
            changes = language_data(options.corpus, os.path.join(options.work, 'text'), *pieces, command, log)
        job['set'] = changes + [f'train.output={json.dumps(os.path.join(folder, "run"))}']
    return job


def without_dropout(job):
    """The same job where nothing is left to chance. The other systems read weights and batches that do not depend on it."""
    return {**job, 'set': [*job['set'], 'model.dropout=0.0'], 'changes': {'dropout': 0}}


def write_job(path, job, dtype, mode):
    with open(path, 'w') as out:
        json.dump({**job, 'dtype': dtype, 'mode': mode}, out, indent=1)
    return path


def export(program, job, folder, log):
    """Tessera writes its initial weights and its first batches; everybody else reads them."""
    path = write_job(os.path.join(folder, 'export.json'), job, 'f32', 'one')
    run_checked([program, 'export', path], log, 'tessera_peer export')
    with open(os.path.join(folder, 'meta.json')) as text:
        return json.load(text)
