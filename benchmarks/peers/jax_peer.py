"""Training steps and collectives in JAX. Modes: one, data, model. Usage: jax_peer.py JOB"""
import sys

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import peer


class Transformer:
    """The language model and the encoder-decoder, on parameters by Tessera's names."""

    def __init__(self, job, weights):
        self.c, self.layers = job.sizes, {stack: peer.layers_of(weights, stack) for stack in ('encoder', 'decoder')}
        self.act = jnp.bfloat16 if job.dtype == 'bf16' else jnp.float32

    def norm(self, p, name, x):
        wide = x.astype(jnp.float32)
        scale = jax.lax.rsqrt(jnp.mean(wide * wide, -1, keepdims=True) + self.c['norm_epsilon'])
        return (wide * scale * p[name + '/scale']).astype(self.act)

    def embed(self, p, ids):
        x = p['embedding/table'][ids]
        if self.c['scale_embedding']:
            x = x * self.c['d_model'] ** 0.5
        positions = p.get('embedding/positions')
        if positions is None:
            positions = jnp.asarray(peer.sinusoids(ids.shape[1], self.c['d_model']))
        return (x + positions[:ids.shape[1]]).astype(self.act)

    def attention(self, p, name, x, memory, visible):
        w = {key: p[f'{name}/{key}'].astype(self.act) for key in 'qkvo'}
        q = jnp.einsum('btd,dhk->bthk', x, w['q']) * self.c['d_kv'] ** -0.5
        k, v = (jnp.einsum('btd,dhk->bthk', memory, w[key]) for key in 'kv')
        logits = jnp.einsum('bthk,bshk->bhts', q, k, preferred_element_type=jnp.float32)
        weights = jax.nn.softmax(jnp.where(visible, logits, -1e9), -1).astype(self.act)
        return jnp.einsum('bthk,hkd->btd', jnp.einsum('bhts,bshk->bthk', weights, v), w['o'])

    def stack(self, p, name, x, visible, memory=None, memory_visible=None):
        for layer in self.layers[name]:
            h = self.norm(p, layer + '/self_attention/norm', x)
            x = x + self.attention(p, layer + '/self_attention', h, h, visible)
            if memory is not None:
                h = self.norm(p, layer + '/cross_attention/norm', x)
                x = x + self.attention(p, layer + '/cross_attention', h, memory, memory_visible)
            h = self.norm(p, layer + '/ffn/norm', x)
            h = jax.nn.relu(jnp.einsum('btd,df->btf', h, p[layer + '/ffn/wi'].astype(self.act)))
            x = x + jnp.einsum('btf,fd->btd', h, p[layer + '/ffn/wo'].astype(self.act))
        return self.norm(p, name + '/final_norm', x)

    def loss(self, p, batch):
        target = batch['target']
        memory = visible = None
        if 'source' in batch:
            visible = (batch['source'] != 0)[:, None, None, :]
            memory = self.stack(p, 'encoder', self.embed(p, batch['source']), visible)
        causal = jnp.tril(jnp.ones((target.shape[1], target.shape[1]), bool))
        x = self.stack(p, 'decoder', self.embed(p, batch['input']), causal, memory, visible)
        table = p.get('softmax/table', p['embedding/table']).astype(self.act)
        return self.cross_entropy(jnp.einsum('btd,vd->btv', x, table).astype(jnp.float32), target)

    def cross_entropy(self, logits, target):
        smoothing, weight = self.c['label_smoothing'], (target != 0).astype(jnp.float32)
        loss = jax.nn.logsumexp(logits, -1) - (1 - smoothing) * jnp.take_along_axis(logits, target[..., None], -1)[..., 0]
        if smoothing > 0:
            loss = loss - smoothing * logits.mean(-1)
        return (loss * weight).sum() / weight.sum()


def two_layers(job):
    act = jnp.bfloat16 if job.dtype == 'bf16' else jnp.float32

    def loss(p, batch):
        hidden = jax.nn.relu(batch['images'].astype(act) @ p['w1'].astype(act))
        logits = (hidden @ p['w2'].astype(act)).astype(jnp.float32)
        return optax.softmax_cross_entropy_with_integer_labels(logits, batch['labels']).mean()
    return loss


def partition(name):
    """How the model mode cuts a parameter: heads, d_ff, vocabulary, hidden layer."""
    last = name.split('/')[-1]
    return {'q': (None, 'x', None), 'k': (None, 'x', None), 'v': (None, 'x', None), 'o': ('x', None, None), 'wi': (None, 'x'),
            'wo': ('x', None), 'table': ('x', None), 'w1': (None, 'x'), 'w2': ('x', None)}.get(last, ())


def optimizer_of(o):
    if o['kind'] == 'sgd':
        return optax.identity()
    clip = [optax.clip_by_global_norm(o['clip_norm'])] if o['clip_norm'] > 0 else []
    return optax.chain(*clip, optax.scale_by_adam(o['beta1'], o['beta2'], o['epsilon']))


def make_step(job):
    peer.need_plain(job)
    weights = job.weights()
    loss = Transformer(job, weights).loss if job.is_transformer else two_layers(job)
    optimizer = optimizer_of(job.meta['optimizer'])
    mesh = Mesh(np.array(jax.devices()), ('x',))

    def spread(*parts):
        return NamedSharding(mesh, PartitionSpec(*parts))
    params = {name: jax.device_put(value, spread(*(partition(name) if job.mode == 'model' else ()))) for name, value in weights.items()}
    del weights
    # Placed like the results of a step, or the second step would compile anew.
    state = jax.tree.map(lambda x: x if x.ndim else jax.device_put(x, spread()), optimizer.init(params))
    places = jax.tree.map(lambda x: x.sharding, (params, state))
    rows = spread('x') if job.mode == 'data' else spread()

    def update(params, state, batch, rate):
        value, grads = jax.value_and_grad(loss)(params, batch)
        updates, state = optimizer.update(grads, state)
        return jax.tree.map(lambda p, u: p - rate * u, params, updates), state, value
    compiled = jax.jit(update, donate_argnums=(0, 1), out_shardings=(*places, spread()))

    def step(batch, rate):
        nonlocal params, state
        if 'target' in batch:
            batch = {**batch, 'input': peer.shifted(batch['target'])}
        batch = {name: jax.device_put(value, rows) for name, value in batch.items()}
        params, state, value = compiled(params, state, batch, jnp.float32(rate))
        jax.block_until_ready((params, state))
        return float(value)
    return step


def make_collective(job):
    mesh = Mesh(np.array(jax.devices()), ('x',))
    spread = NamedSharding(mesh, PartitionSpec('x'))
    bodies = {'all_reduce': lambda x: jax.lax.psum(x, 'x'), 'reduce_scatter': lambda x: jax.lax.psum_scatter(x, 'x', tiled=True),
              'all_gather': lambda x: jax.lax.all_gather(x, 'x', tiled=True), 'all_to_all': lambda x: jax.lax.all_to_all(x, 'x', 0, 0, tiled=True)}

    def run(op, size, count):
        elements = size // 4 // (job.ranks if op == 'all_gather' else 1)
        x = jax.device_put(jnp.zeros(elements * job.ranks, jnp.float32), spread)
        f = jax.jit(jax.shard_map(bodies[op], mesh=mesh, in_specs=PartitionSpec('x'), out_specs=PartitionSpec('x')))
        return peer.timed(lambda: f(x).block_until_ready(), count)
    return run


if __name__ == '__main__':
    JOB = peer.Job(sys.argv[1])
    jax.config.update('jax_num_cpu_devices', 1 if JOB.mode == 'one' else JOB.ranks)
    peer.serve(JOB, make_step, make_collective)
