"""Training steps and gloo collectives in PyTorch. Modes: eager, compile, ddp. Usage: torch_peer.py JOB [RANK MEETING]"""
import atexit
import functools
import os
import shutil
import subprocess
import sys
import tempfile

# A folder of its own, so that nothing compiled by an earlier process is found again unless the driver names another.
FOLDER = tempfile.mkdtemp()
atexit.register(shutil.rmtree, FOLDER, ignore_errors=True)
os.environ['TORCHINDUCTOR_CACHE_DIR'] = os.environ.get('PEER_COMPILED') or os.path.join(FOLDER, 'compiled')
import numpy as np  # noqa: E402
import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
import torch.nn.functional as F  # noqa: E402
from torch import nn  # noqa: E402

import peer  # noqa: E402


def matrix(*weights):
    """A Linear without bias whose outputs are those of the given weights [in, out...] side by side."""
    rows = np.concatenate([w.reshape(w.shape[0], -1).T for w in weights])
    linear = nn.Linear(rows.shape[1], rows.shape[0], bias=False, device='meta')
    linear.weight = nn.Parameter(torch.tensor(rows))
    return linear


ACTIVATIONS = {'relu': F.relu, 'gelu': functools.partial(F.gelu, approximate='tanh'), 'gelu_erf': F.gelu, 'swish': F.silu,
               'tanh': torch.tanh, 'sigmoid': torch.sigmoid, 'linear': lambda x: x}


def tensor(values):
    """Indices are 64 bits wide in PyTorch."""
    return torch.from_numpy(values if values.dtype == np.float32 else values.astype(np.int64))


class Norm(nn.Module):
    def __init__(self, weights, name, epsilon):
        super().__init__()
        self.scale, self.epsilon = nn.Parameter(torch.tensor(weights[name + '/scale'])), epsilon

    def forward(self, x):
        return F.rms_norm(x, self.scale.shape, self.scale.to(x.dtype), self.epsilon)


class Attention(nn.Module):
    """Queries, keys and values of self-attention come from one product."""

    def __init__(self, weights, name, sizes, cross):
        super().__init__()
        self.cross, self.heads, self.rate = cross, sizes['heads'], sizes['dropout']
        self.norm = Norm(weights, name + '/norm', sizes['norm_epsilon'])
        q, k, v = (weights[f'{name}/{key}'] for key in 'qkv')
        if cross:
            self.q, self.kv = matrix(q), matrix(k, v)
        else:
            self.qkv = matrix(q, k, v)
        o = weights[name + '/o']
        self.o = matrix(o.reshape(-1, o.shape[-1]))

    def split(self, x, parts):
        return x.view(x.shape[0], x.shape[1], parts, self.heads, -1).permute(2, 0, 3, 1, 4).unbind(0)

    def forward(self, x, memory, visible):
        h = self.norm(x)
        if self.cross:
            (q,), (k, v) = self.split(self.q(h), 1), self.split(self.kv(memory), 2)
        else:
            q, k, v = self.split(self.qkv(h), 3)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=visible, dropout_p=self.rate, is_causal=visible is None)
        return x + F.dropout(self.o(y.transpose(1, 2).flatten(2)), self.rate)


class FeedForward(nn.Module):
    """The factors of a gated unit come from one product."""

    def __init__(self, weights, name, sizes):
        super().__init__()
        self.rate = sizes['dropout']
        self.activations = [ACTIVATIONS[kind] for kind in sizes['activation']]
        self.norm = Norm(weights, name + '/norm', sizes['norm_epsilon'])
        names = ['wi'] if len(self.activations) == 1 else [f'wi_{i}' for i in range(len(self.activations))]
        self.wi, self.wo = matrix(*(weights[f'{name}/{label}'] for label in names)), matrix(weights[name + '/wo'])

    def forward(self, x):
        parts = self.wi(self.norm(x)).chunk(len(self.activations), -1)
        h = functools.reduce(torch.mul, (activation(part) for activation, part in zip(self.activations, parts)))
        return x + F.dropout(self.wo(F.dropout(h, self.rate)), self.rate)


class RelativeBias(nn.Module):
    """A bias for each head and bucket of distances; what a query must not see has minus infinity."""

    def __init__(self, weights, name, sizes):
        super().__init__()
        self.table = nn.Parameter(torch.tensor(weights[name]))
        buckets = peer.relative_buckets(sizes['max_length'], sizes['relative_buckets'], sizes['relative_max_distance'])
        self.register_buffer('buckets', torch.tensor(buckets))

    def forward(self, length):
        """[1, heads, queries, memory]. A row is the window of one line of distances that ends at its query."""
        bias = self.table[:, self.buckets[:length].flip(0)]
        return F.pad(bias, (0, length - 1), value=-torch.inf).unfold(-1, length, 1).flip(1)[None]


class Transformer(nn.Module):
    def __init__(self, job, weights):
        super().__init__()
        self.c = c = job.sizes
        self.table = nn.Parameter(torch.tensor(weights['embedding/table']))
        self.learned = nn.Parameter(torch.tensor(weights['embedding/positions'])) if 'embedding/positions' in weights else None
        self.register_buffer('fixed', torch.tensor(peer.sinusoids(c['max_length'], c['d_model'])) if c['positions'] == 'sinusoidal' else None)
        self.bias = RelativeBias(weights, 'decoder/relative_bias', c) if c['positions'] == 'relative' else None
        self.out = nn.Parameter(torch.tensor(weights['softmax/table'])) if 'softmax/table' in weights else None
        for stack in ('encoder', 'decoder'):
            parts = []
            for layer in peer.layers_of(weights, stack):
                parts.append(Attention(weights, layer + '/self_attention', c, False))
                if layer + '/cross_attention/q' in weights:
                    parts.append(Attention(weights, layer + '/cross_attention', c, True))
                parts.append(FeedForward(weights, layer + '/ffn', c))
            if parts:
                parts.append(Norm(weights, stack + '/final_norm', c['norm_epsilon']))
            setattr(self, stack, nn.ModuleList(parts))

    def embed(self, ids):
        x = F.embedding(ids, self.table)
        if self.c['scale_embedding']:
            x = x * self.c['d_model'] ** 0.5
        positions = self.fixed if self.learned is None else self.learned
        if positions is not None:
            x = x + positions[:ids.shape[1]]
        return F.dropout(x, self.c['dropout'])

    def run(self, parts, x, memory=None, memory_visible=None, visible=None):
        for part in parts:
            if isinstance(part, Attention):
                x = part(x, memory if part.cross else x, memory_visible if part.cross else visible)
            else:
                x = part(x)
        return F.dropout(x, self.c['dropout'])  # the last part is a norm

    def forward(self, batch):
        """Sum of the losses of the real tokens."""
        memory = visible = None
        if 'source' in batch:
            visible = (batch['source'] != 0)[:, None, None, :]
            memory = self.run(self.encoder, self.embed(batch['source']), visible=visible)
        causal = None if self.bias is None else self.bias(batch['input'].shape[1])
        x = self.run(self.decoder, self.embed(batch['input']), memory, visible, causal)
        logits = F.linear(x, self.table if self.out is None else self.out).float()
        return F.cross_entropy(logits.flatten(0, 1), batch['target'].flatten(), ignore_index=0, label_smoothing=self.c['label_smoothing'],
                               reduction='sum')


class TwoLayers(nn.Module):
    def __init__(self, weights):
        super().__init__()
        self.w1, self.w2 = matrix(weights['w1']), matrix(weights['w2'])

    def forward(self, batch):
        return F.cross_entropy(self.w2(F.relu(self.w1(batch['images']))).float(), batch['labels'], reduction='sum')


def optimizer_of(o, parameters):
    if o['kind'] == 'sgd':
        return torch.optim.SGD(parameters, lr=0.0, fused=True)
    return torch.optim.Adam(parameters, lr=0.0, betas=(o['beta1'], o['beta2']), eps=o['epsilon'], fused=True)


class Ranks:
    """The gloo processes: this one is rank 0 and starts the others, which wait for its orders."""

    def __init__(self, job, path):
        self.size = job.ranks
        if len(sys.argv) > 3:
            self.rank, meeting = int(sys.argv[2]), sys.argv[3]
        else:
            self.rank, meeting = 0, os.path.join(FOLDER, 'meeting')
            for rank in range(1, self.size):
                subprocess.Popen([sys.executable, __file__, path, str(rank), meeting], stdin=subprocess.DEVNULL)
        torch.set_num_threads(1)
        dist.init_process_group('gloo', init_method=f'file://{meeting}', rank=self.rank, world_size=self.size)

    def order(self, *numbers):
        """Rank 0 tells the others three numbers; they return them."""
        words = torch.tensor(numbers if self.rank == 0 else (0, 0, 0))
        dist.broadcast(words, 0)
        return words.tolist()


def make_step(job, ranks=None):
    weights = job.weights()
    network = Transformer(job, weights) if job.is_transformer else TwoLayers(weights)
    del weights
    if ranks:
        network = nn.parallel.DistributedDataParallel(network, gradient_as_bucket_view=True, static_graph=True)
    call = network
    if job.mode == 'compile':
        call = torch.compile(network, mode='max-autotune' if job.flag == 'max-autotune' else None)
    settings = job.meta['optimizer']
    optimizer = optimizer_of(settings, network.parameters())
    world, rank = (ranks.size, ranks.rank) if ranks else (1, 0)

    def step(batch, rate):
        whole = (batch['target'] != 0).sum() if job.is_transformer else len(batch['labels'])
        if job.is_transformer:
            batch = {**batch, 'input': peer.shifted(batch['target'])}
        mine = {name: tensor(np.array_split(value, world)[rank]) for name, value in batch.items()}
        with torch.autocast('cpu', torch.bfloat16, enabled=job.dtype == 'bf16'):
            loss = call(mine) / float(whole)
        (loss * world).backward()  # gradients are averaged over the ranks
        if settings['clip_norm'] > 0:
            nn.utils.clip_grad_norm_(network.parameters(), settings['clip_norm'])
        for group in optimizer.param_groups:
            group['lr'] = rate
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        total = loss.detach()
        if ranks:
            dist.all_reduce(total)
        return total.item()
    return step


def collective_of(op, size, ranks):
    """A function that does the collective once, on zeros."""
    whole, part = torch.zeros(size // 4), torch.zeros(size // 4 // ranks.size)
    if op == 'all_reduce':
        return lambda: dist.all_reduce(whole)
    if op == 'reduce_scatter':
        return lambda: dist.reduce_scatter_tensor(part, whole)
    if op == 'all_gather':
        return lambda: dist.all_gather_into_tensor(whole, part)
    out = torch.zeros_like(whole)
    return lambda: dist.all_to_all_single(out, whole)


OPS = ('all_reduce', 'reduce_scatter', 'all_gather', 'all_to_all')


def lead(ranks):
    def run(op, size, count):
        ranks.order(OPS.index(op) + 1, size, count)
        try:
            return peer.timed(collective_of(op, size, ranks), count)
        except (RuntimeError, NotImplementedError) as error:
            raise peer.Skip(f'gloo: {str(error).splitlines()[0]}')
    return run


def follow(job, ranks):
    """What the other ranks do: 0 ends, -1 is a number of steps, else a collective."""
    step = None
    while True:
        what, size, count = ranks.order()
        if what == 0:
            return
        if what < 0:
            step = step or make_step(job, ranks)
            peer.repeat(job, step, count)
            continue
        try:
            peer.timed(collective_of(OPS[what - 1], size, ranks), count)
        except (RuntimeError, NotImplementedError):
            pass  # rank 0 says so


def led_step(job, ranks):
    """Each step of rank 0 is an order to the others."""
    step = None

    def run(batch, rate):
        nonlocal step
        ranks.order(-1, 0, 1)
        step = step or make_step(job, ranks)
        return step(batch, rate)
    return run


def main():
    job = peer.Job(sys.argv[1])
    torch.manual_seed(0)
    if job.mode not in ('ddp', 'collectives'):
        torch.set_num_threads(job.ranks)
        peer.serve(job, make_step)
        return
    ranks = Ranks(job, sys.argv[1])
    if ranks.rank > 0:
        follow(job, ranks)
        return
    peer.serve(job, lambda j: led_step(j, ranks), lambda j: lead(ranks))
    ranks.order(0, 0, 0)
    dist.destroy_process_group()


if __name__ == '__main__':
    main()
