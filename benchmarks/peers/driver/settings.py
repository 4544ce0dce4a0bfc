"""Which models are measured, and every mode and documented flag that each system is tried with."""
import dataclasses

from . import drawn


@dataclasses.dataclass(frozen=True)
class Model:
    about: str
    steps: int  # of one turn in a round
    batches: int  # made beforehand; steps beyond start again
    memory: dict  # GiB that a process of each system needs, about
    unit: str = 'tokens'
    sizes: dict = dataclasses.field(default_factory=dict)  # two-layer network
    config: dict = dataclasses.field(default_factory=dict)  # drawn language model

    @property
    def is_transformer(self):
        return not self.sizes


MODELS = {
    'lm': Model('language model of 51.8 M parameters: 6 layers, d_model 512, d_ff 2,048, 8 heads, vocabulary 32,000, batch 8 x 256',
                steps=2, batches=64, memory={'tessera': 2, 'jax': 4, 'torch': 5, 'mesh_tf': 7}),
    'translation': Model('encoder-decoder of configs/demo.toml, batch 24 x (80 + 80)',
                         steps=4, batches=64, memory={'tessera': 1, 'jax': 2, 'torch': 3, 'mesh_tf': 4}),
    'mlp_small': Model('two-layer network, batch 128 of 784-1024-10', steps=200, batches=64, unit='examples',
                       memory={'tessera': 1, 'jax': 1, 'torch': 2, 'mesh_tf': 2},
                       sizes={'batch': 128, 'inputs': 784, 'hidden': 1024, 'classes': 10}),
    'mlp_large': Model('two-layer network, batch 2,048 of 4,096-4,096-4,096', steps=2, batches=8, unit='examples',
                       memory={'tessera': 1, 'jax': 2, 'torch': 2, 'mesh_tf': 3},
                       sizes={'batch': 2048, 'inputs': 4096, 'hidden': 4096, 'classes': 4096}),
}


def drawn_model(seed, number, gflop):
    """Adam where the draw says Adafactor: PyTorch's factors each tensor over its last two dimensions, whatever their sizes, and takes
    norms over products of several weights, so that it is another formula."""
    config = drawn.draw(seed, number, gflop)
    config['optimizer']['kind'] = 'adam'
    m, data = config['model'], config['data']
    rows, length = data['batch_sentences'], data['max_target_length']
    weights = m['d_model'] * (m['layers'] * 4 * (m['heads'] * m['d_kv'] + m['d_ff']) + (1 if m['tied_softmax'] else 2) * m['vocab'])
    # Weights, gradients, slots; logits and activations; dropped attention weights, of which PyTorch keeps three of each layer.
    saved = rows * length * (3 * m['vocab'] + m['layers'] * 12 * (m['d_model'] + m['heads'] * m['d_kv'] + m['d_ff']))
    weighted = 3 * m['layers'] * rows * m['heads'] * length * length
    gib = {'tessera': 0.5 + 4 * (4 * weights + saved) / (1 << 30), 'torch': 1 + 4 * (4 * weights + saved + weighted) / (1 << 30)}
    return Model(f'{drawn.about(config)}, batch {drawn.batch(config)}', steps=2, batches=32, memory=gib, config=config)


PEERS = {'tessera': 'Tessera', 'jax': 'JAX', 'torch': 'PyTorch', 'mesh_tf': 'Mesh-TensorFlow', 'mpi': 'Open MPI'}


@dataclasses.dataclass(frozen=True)
class Mode:
    name: str
    about: str
    environment: tuple = ()  # of (name, value)
    preload: str = ''  # a library to load first, found by its name
    heavy: bool = False  # memory counts once per rank


TCMALLOC = 'libtcmalloc_minimal.so.4'
SPLIT = 'heads, d_ff and vocabulary (or the hidden layer) split'

MODES = {
    'tessera': [Mode('one', 'one rank, all cores'), Mode('data', 'a rank per core, batch split'), Mode('model', f'a rank per core, {SPLIT}')],
    'jax': [
        Mode('one', 'jit, donated buffers'),
        Mode('data', 'a host device per core, batch split'),
        Mode('model', f'a host device per core, {SPLIT}'),
        Mode('one+fast-math', 'jit, --xla_cpu_enable_fast_math', (('XLA_FLAGS', '--xla_cpu_enable_fast_math=true'),)),
    ],
    'torch': [
        Mode('eager', 'one process, fused Adam'),
        Mode('compile', 'torch.compile'),
        Mode('ddp', 'a gloo process per core, gradients as bucket views', heavy=True),
        Mode('eager+tcmalloc', 'tcmalloc instead of malloc', preload=TCMALLOC),
        Mode('compile+tcmalloc', 'torch.compile, tcmalloc', preload=TCMALLOC),
        Mode('compile+max-autotune', 'torch.compile(mode="max-autotune")'),
    ],
    'mesh_tf': [
        Mode('one', 'one device, all cores'),
        Mode('data', 'a virtual CPU per core, batch split'),
        Mode('model', f'a virtual CPU per core, {SPLIT}'),
        Mode('one+xla', 'XLA auto-clustering on the CPU', (('TF_XLA_FLAGS', '--tf_xla_auto_jit=2 --tf_xla_cpu_global_jit'),)),
    ],
}


@dataclasses.dataclass(frozen=True)
class Setting:
    """One system with one mode on one model."""
    peer: str
    mode: Mode
    model: str
    dtype: str
    memory: float = 1  # GiB of a process

    @property
    def name(self):
        return f'{PEERS[self.peer]} {self.mode.name}'

    @property
    def kind(self):
        """Of settings of one kind the best is measured to the end. Compiled and eager PyTorch are two where models are drawn."""
        return self.name.partition('+')[0] if self.peer == 'torch' and self.model.startswith('drawn') else PEERS[self.peer]

    def memory_gib(self, ranks):
        return self.memory * (ranks if self.mode.heavy else 1)


def of_each_mode(settings):
    """The first setting of each mode, whatever its flags, which change no result."""
    first = {}
    for setting in settings:
        first.setdefault((setting.peer, setting.mode.name.partition('+')[0]), setting)
    return list(first.values())


# What drawn models are measured with unless other modes are named.
DRAWN_MODES = ('one', 'data', 'eager', 'compile', 'eager+tcmalloc', 'compile+tcmalloc')


def settings_for(name, model, dtype, peers, modes=None):
    """All settings of a model, those of the reference first. `modes` keeps only the named ones."""
    modes = modes or (DRAWN_MODES if model.config else None)
    return [Setting(peer, mode, name, dtype, model.memory[peer]) for peer in MODES if peer in peers and peer in model.memory for mode in MODES[peer]
            if not modes or mode.name in modes]
