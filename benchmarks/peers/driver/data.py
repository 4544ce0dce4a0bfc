"""Makes what all systems read: text, initial weights, batches."""
import json
import os

from .environments import run_checked

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), '..', '..', '..'))


class NoCorpus(Exception):
    """There is no text to read."""


def text_files(source, lines, running, megabytes):
    """The beginning of a text as it is, for the tokenizer, and in lines of about 64 KiB, so that rows of tokens are full."""
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
            if width > 1 << 16:
                long.write('\n')
                width = 0
        long.write('\n')


def need(path):
    if not os.path.exists(path):
        raise NoCorpus(f'{path} is missing: scripts/fetch_corpus.sh makes the corpus; --corpus names another folder')
    return path


def language_model(corpus, folder, command, log):
    """Configuration file and overrides of the language model."""
    lines, running, tokenizer = (os.path.join(folder, name) for name in ('lines.txt', 'running.txt', 'tokenizer.model'))
    corpus_text = need(os.path.join(corpus, 'lm', 'train.txt'))
    if not os.path.exists(tokenizer):
        text_files(corpus_text, lines, running, 20)
        run_checked([command, 'tokenizer', 'train', tokenizer + '.part', lines, '--vocab', '32000'], log, 'tessera tokenizer train')
        os.replace(tokenizer + '.part', tokenizer)
    return os.path.join(ROOT, 'benchmarks', 'peers', 'lm.toml'), [f'data.train.files={json.dumps([running])}', f'data.tokenizer={json.dumps(tokenizer)}']


def translation(corpus, folder):
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
        if name == 'lm':
            job['config'], changes = language_model(options.corpus, folder, command, log)
        else:
            job['config'], changes = translation(options.corpus, folder)
        job['set'] = changes + [f'train.output={json.dumps(os.path.join(folder, "run"))}']
    return job


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
