"""Training steps in Mesh-TensorFlow. Modes: one, data, model. Usage: mesh_tf_peer.py JOB"""
import os
import sys

os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '3')
os.environ.setdefault('TF_USE_LEGACY_KERAS', '1')
import numpy as np  # noqa: E402
import tensorflow.compat.v1 as tf  # noqa: E402
from tensorflow.python.framework import ops, tensor_conversion_registry  # noqa: E402

# Mesh-TensorFlow 0.1.21 looks for this name where TensorFlow 2.15 no longer has it.
ops.register_tensor_conversion_function = tensor_conversion_registry.register_tensor_conversion_function
import mesh_tensorflow as mtf  # noqa: E402

import peer  # noqa: E402

tf.disable_v2_behavior()
LAYOUTS = {'one': '', 'data': 'batch:all', 'model': 'heads:all;d_ff:all;vocab:all;hidden:all'}
# Dimensions of parameters by the last part of their name.
DIMS = {'scale': 'd_model', 'q': 'd_model heads d_kv', 'k': 'd_model heads d_kv', 'v': 'd_model heads d_kv', 'o': 'heads d_kv d_model',
        'wi': 'd_model d_ff', 'wo': 'd_ff d_model', 'table': 'vocab d_model', 'positions': 'length d_model', 'w1': 'inputs hidden', 'w2': 'hidden classes'}


class Builder:
    """A graph over one mesh: variables by Tessera's names, inputs as placeholders."""

    def __init__(self, job, weights, batch):
        self.c, self.weights, self.act = job.sizes, weights, tf.bfloat16 if job.dtype == 'bf16' else tf.float32
        self.types = mtf.VariableDType(tf.float32, tf.float32, self.act)
        self.graph = mtf.Graph()
        self.mesh = mtf.Mesh(self.graph, 'mesh')
        self.placeholders, self.variables, self.masters = {}, {}, {}
        self.shapes = {name: value.shape for name, value in batch.items()}

    def input(self, name, dims, dtype=tf.int32):
        shape = mtf.Shape([mtf.Dimension(d, size) for d, size in dims])
        self.placeholders[name] = tf.placeholder(dtype, [d.size for d in shape.dims], name)
        return mtf.import_tf_tensor(self.mesh, self.placeholders[name], shape)

    def variable(self, name):
        """In the activations' type, as Mesh-TensorFlow's own layers read it."""
        if name not in self.variables:
            dims = [mtf.Dimension(d, size) for d, size in zip(DIMS[name.split('/')[-1]].split(), self.weights[name].shape)]
            self.variables[name] = mtf.get_variable(self.mesh, name.replace('/', '_'), mtf.Shape(dims), dtype=self.types, initializer=tf.zeros_initializer())
            self.masters[name] = self.variables[name].operation.get_master()  # lowering may stack the variables
        return self.variables[name]


class Transformer(Builder):
    def norm(self, name, x):
        d_model = x.shape.dims[-1]
        return x * mtf.rsqrt(mtf.reduce_mean(mtf.square(x), reduced_dim=d_model) + self.c['norm_epsilon']) * self.variable(name + '/scale')

    def embed(self, ids):
        table = self.variable('embedding/table')
        x = mtf.gather(table, ids, table.shape.dims[0])
        if self.c['scale_embedding']:
            x *= self.c['d_model'] ** 0.5
        if 'embedding/positions' in self.weights:
            return x + self.variable('embedding/positions')
        length = ids.shape.dims[1]
        fixed = tf.constant(peer.sinusoids(length.size, self.c['d_model']))
        return x + mtf.cast(mtf.import_tf_tensor(self.mesh, fixed, mtf.Shape([length, x.shape.dims[-1]])), self.act)

    def attention(self, name, x, memory, bias):
        batch, length, d_model = x.shape.dims
        q, k, v, o = (self.variable(f'{name}/{key}') for key in 'qkvo')
        heads, d_kv = q.shape.dims[1:]
        memory = mtf.rename_dimension(memory, memory.shape.dims[1].name, 'memory_length')
        places = memory.shape.dims[1]
        queries = mtf.einsum([x, q], [batch, length, heads, d_kv]) * self.c['d_kv'] ** -0.5
        keys, values = (mtf.einsum([memory, w], [batch, places, heads, d_kv]) for w in (k, v))
        weights = mtf.softmax(mtf.einsum([queries, keys], [batch, heads, length, places]) + bias, places)
        return mtf.einsum([mtf.einsum([weights, values], [batch, length, heads, d_kv]), o], [batch, length, d_model])

    def stack(self, name, x, bias, memory=None, memory_bias=None):
        for layer in peer.layers_of(self.weights, name):
            h = self.norm(layer + '/self_attention/norm', x)
            x += self.attention(layer + '/self_attention', h, h, bias)
            if memory is not None:
                h = self.norm(layer + '/cross_attention/norm', x)
                x += self.attention(layer + '/cross_attention', h, memory, memory_bias)
            h, wi, wo = self.norm(layer + '/ffn/norm', x), self.variable(layer + '/ffn/wi'), self.variable(layer + '/ffn/wo')
            h = mtf.relu(mtf.einsum([h, wi], x.shape.dims[:2] + [wi.shape.dims[1]]))
            x += mtf.einsum([h, wo], x.shape.dims)
        return self.norm(name + '/final_norm', x)

    def loss(self):
        batch, length = self.shapes['target']
        rows = [('batch', batch), ('length', length)]
        target, ids = self.input('target', rows), self.input('input', rows)
        memory = memory_bias = None
        if 'source' in self.shapes:
            source = self.input('source', [('batch', batch), ('length', self.shapes['source'][1])])
            hidden = mtf.cast(mtf.equal(source, 0), self.act) * -1e9
            memory_bias = mtf.rename_dimension(hidden, 'length', 'memory_length')
            memory = self.stack('encoder', self.embed(source), memory_bias)
        places = [mtf.range(self.mesh, mtf.Dimension(name, length), tf.int32) for name in ('length', 'memory_length')]
        causal = mtf.cast(mtf.less(places[0], places[1]), self.act) * -1e9
        x = self.stack('decoder', self.embed(ids), causal, memory, memory_bias)
        table = self.variable('softmax/table' if 'softmax/table' in self.weights else 'embedding/table')
        vocab = table.shape.dims[0]
        logits = mtf.cast(mtf.einsum([x, table], x.shape.dims[:2] + [vocab]), tf.float32)
        smoothing, labels = self.c['label_smoothing'], target
        if smoothing > 0:
            off = smoothing / vocab.size
            labels = mtf.one_hot(target, vocab, on_value=1 - smoothing + off, off_value=off, dtype=tf.float32)
        losses = mtf.layers.softmax_cross_entropy_with_logits(logits, labels, vocab)
        real = mtf.cast(mtf.not_equal(target, 0), tf.float32)
        return mtf.reduce_sum(losses * real) / mtf.reduce_sum(real)


class TwoLayers(Builder):
    def loss(self):
        batch, inputs = self.shapes['images']
        images = mtf.cast(self.input('images', [('batch', batch), ('inputs', inputs)], tf.float32), self.act)
        labels = self.input('labels', [('batch', batch)])
        w1, w2 = self.variable('w1'), self.variable('w2')
        rows = images.shape.dims[0]
        hidden = mtf.relu(mtf.einsum([images, w1], [rows, w1.shape.dims[1]]))
        logits = mtf.cast(mtf.einsum([hidden, w2], [rows, w2.shape.dims[1]]), tf.float32)
        return mtf.reduce_mean(mtf.layers.softmax_cross_entropy_with_logits(logits, labels, w2.shape.dims[1]))


def updates(builder, loss, settings):
    variables = builder.graph.trainable_variables
    grads = mtf.gradients([loss], [v.outputs[0] for v in variables])
    rate = builder.input('rate', [], tf.float32)
    grads = [mtf.cast(g, tf.float32) for g in grads]
    if settings['kind'] == 'sgd':
        return mtf.optimize.SgdOptimizer(rate).apply_grads(grads, variables)
    if settings['clip_norm'] > 0:
        norm = mtf.sqrt(mtf.add_n([mtf.reduce_sum(mtf.square(g)) for g in grads]))
        factor = settings['clip_norm'] / mtf.maximum(norm, settings['clip_norm'])
        grads = [g * factor for g in grads]
    # Its Adam has no bias correction; the first loss does not depend on it.
    adam = mtf.optimize.AdamWeightDecayOptimizer(rate, beta_1=settings['beta1'], beta_2=settings['beta2'], epsilon=settings['epsilon'])
    return adam.apply_grads(grads, variables)


def make_step(job):
    peer.need_plain(job)
    weights, first = job.weights(), job.batch(0)
    builder = (Transformer if job.is_transformer else TwoLayers)(job, weights, first)
    loss = builder.loss()
    assignments = updates(builder, loss, job.meta['optimizer'])
    devices = 1 if job.mode == 'one' else job.ranks
    mesh = mtf.placement_mesh_impl.PlacementMeshImpl(mtf.convert_to_shape(f'all:{devices}'), mtf.convert_to_layout_rules(LAYOUTS[job.mode]),
                                                     [f'cpu:{i}' for i in range(devices)])
    lowering = mtf.Lowering(builder.graph, {builder.mesh: mesh})
    fetch = lowering.export_to_tf_tensor(loss)
    train = tf.group([lowering.lowered_operation(a) for a in assignments])
    session = tf.Session(config=tf.ConfigProto(device_count={'CPU': devices}, intra_op_parallelism_threads=job.ranks, inter_op_parallelism_threads=job.ranks))
    session.run(tf.global_variables_initializer())
    for name, master in builder.masters.items():
        master.load(weights[name], session)
    session.run(lowering.copy_masters_to_slices())
    del weights, builder.weights

    def step(batch, rate):
        if 'target' in batch:
            batch = {**batch, 'input': peer.shifted(batch['target'])}
        feeds = {builder.placeholders[name]: value for name, value in batch.items()}
        feeds[builder.placeholders['rate']] = np.float32(rate)
        return float(session.run([fetch, train], feeds)[0])
    return step


if __name__ == '__main__':
    peer.serve(peer.Job(sys.argv[1]), make_step)
