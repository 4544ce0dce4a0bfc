"""What the scripts of all systems share: the job, Tessera's weights and batches, and the line protocol. Needs NumPy."""
import json
import os
import sys
import time

import numpy as np

TYPES = {'F32': np.float32, 'I32': np.int32}


class Skip(Exception):
    """This system has no such mode or collective."""


class Tensors:
    """A safetensors file, read tensor by tensor."""

    def __init__(self, path):
        self.file = open(path, 'rb')
        size = int.from_bytes(self.file.read(8), 'little')
        self.entries = json.loads(self.file.read(size))
        self.entries.pop('__metadata__', None)
        self.start = 8 + size

    def read(self, name, row=None):
        """A whole tensor, or one row of its first dimension."""
        entry = self.entries[name]
        shape, (begin, end) = entry['shape'], entry['data_offsets']
        if row is not None:
            step = (end - begin) // shape[0]
            begin, end, shape = begin + row * step, begin + (row + 1) * step, shape[1:]
        kind = np.dtype(TYPES[entry['dtype']])
        self.file.seek(self.start + begin)
        return np.fromfile(self.file, kind, (end - begin) // kind.itemsize).reshape(shape)


class Job:
    """What this process is to compute. `mode` is a name of driver/settings.py without its flags."""

    def __init__(self, path):
        with open(path) as text:
            job = json.load(text)
        self.model, self.dtype, self.ranks = job['model'], job['dtype'], job['ranks']
        self.mode, _, self.flag = job['mode'].partition('+')
        self.folder = job['data']
        if self.model == 'collectives':
            return
        with open(os.path.join(self.folder, 'meta.json')) as text:
            self.meta = json.load(text)
        self.sizes = {**self.meta['sizes'], **job.get('changes', {})}
        self.is_transformer = 'd_model' in self.sizes
        self.batches = Tensors(os.path.join(self.folder, 'batches.safetensors'))
        self.steps = 0

    def weights(self):
        """Initial weights by Tessera's names, f32."""
        file = Tensors(os.path.join(self.folder, 'weights.safetensors'))
        return {name: file.read(name) for name in file.entries}

    def batch(self, step):
        """Inputs of a step by name."""
        row = step % self.meta['batches']
        return {name: self.batches.read(name, row) for name in self.batches.entries}

    def rate(self, step):
        """Learning rate of a step."""
        return self.meta['rates'][min(step, len(self.meta['rates']) - 1)]


def need_plain(job):
    """For scripts that compute ReLU and added positions alone."""
    sizes = job.sizes
    if job.is_transformer and (sizes['dropout'] > 0 or sizes['activation'] != ['relu'] or sizes['positions'] not in ('learned', 'sinusoidal')):
        raise Skip(f'no dropout {sizes["dropout"]}, {"*".join(sizes["activation"])}, {sizes["positions"]} positions in this script')


def layers_of(weights, stack):
    """Names of the layers of a stack: decoder/layer_000, ..."""
    return sorted({'/'.join(name.split('/')[:2]) for name in weights if name.startswith(stack + '/layer_')})


def sinusoids(length, width):
    """Sine of position / 10000^(i / (width/2 - 1)) in the first half of the width, cosine in the second."""
    half = width // 2
    angle = np.arange(length)[:, None] * np.exp(np.arange(half) * -(np.log(1e4) / max(half - 1, 1)))
    return np.concatenate([np.sin(angle), np.cos(angle)], 1).astype(np.float32)


def relative_buckets(length, buckets, longest):
    """Bucket of each distance back, as in T5: the first half one each, then evenly in their logarithm up to `longest`."""
    back, exact = np.arange(length), buckets // 2
    # The slack keeps powers of two, whose quotient of logarithms is a whole number, from rounding down.
    far = exact + (np.log(np.maximum(back, 1) / exact) / np.log(longest / exact) * (buckets - exact) + 1e-9).astype(np.int64)
    return np.where(back < exact, back, np.minimum(far, buckets - 1))


def shifted(target):
    """What a decoder reads: the target moved right by one place, 0 first."""
    return np.pad(target, ((0, 0), (1, 0)))[:, :-1]


def repeat(job, step, count):
    """Runs steps one after the other: fresh batch, rate fed, loss fetched."""
    seconds, losses = [], []
    for _ in range(count):
        begin = time.perf_counter()
        losses.append(step(job.batch(job.steps), job.rate(job.steps)))
        job.steps += 1
        seconds.append(time.perf_counter() - begin)
    return {'seconds': seconds, 'losses': losses}


def timed(body, count):
    """Seconds of each of `count` calls, after one that warms up."""
    body()
    seconds = []
    for _ in range(count):
        begin = time.perf_counter()
        body()
        seconds.append(time.perf_counter() - begin)
    return {'seconds': seconds}


def serve(job, make_step, make_collective=None):
    """Answers requests until the input ends. `make_step(job)` returns step(batch, rate) -> loss; `make_collective(job)` returns
    run(op, bytes, count) -> answer. What libraries print goes to the standard error output."""
    answers = os.fdopen(os.dup(1), 'w')
    os.dup2(2, 1)
    step = run = None
    for line in sys.stdin:
        words = line.split()
        if words[0] == 'quit':
            break
        try:
            if words[0] == 'steps':
                step = step or make_step(job)
                answer = repeat(job, step, int(words[1]))
            else:
                run = run or make_collective(job)
                answer = run(words[1], int(words[2]), int(words[3]))
        except Skip as reason:
            answer = {'skip': str(reason)}
        print(json.dumps(answer), file=answers, flush=True)
