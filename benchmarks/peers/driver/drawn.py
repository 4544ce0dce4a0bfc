"""Language models drawn by chance: sizes that nobody tuned for. The same seed draws the same models."""
import json
import random

SIZES = {'layers': [2, 3, 4], 'd_model': [320, 384, 512, 640, 768, 1024], 'heads': [4, 6, 8], 'd_kv': [32, 64, 96, 128, 256],
         'd_ff': [1024, 1365, 2048, 2731], 'vocab': [8000, 16001, 32000, 50257], 'activation': [['relu'], ['gelu'], ['swish', 'linear']]}
MESHES = [('', ''), ('data:2', 'batch:data'), ('model:2', 'heads:model;d_ff:model;vocab:model'), ('data:2', 'batch:data;slots.*:data')]


def draw(seed, number, gflop, dtype='f32'):
    """Configuration number `number` of a seed, section by section. The batch takes about so many Gflop a step."""
    chance = random.Random(f'{seed} {number}')
    length = chance.choice([64, 200, 512, 1024, 2048, 4096])
    model = {'kind': 'lm', **{name: chance.choice(values) for name, values in SIZES.items()}, 'dropout': 0.1,
             'positions': chance.choice(['learned', 'sinusoidal', 'relative']), 'max_length': length,
             'tied_softmax': chance.random() < 0.5, 'dtype': dtype}
    ways = len(model['activation']) + 1
    weights = model['layers'] * (4 * model['heads'] * model['d_kv'] + ways * model['d_ff']) * model['d_model']
    flops_a_token = 6 * (weights + model['vocab'] * model['d_model']) + 6 * model['layers'] * length * model['heads'] * model['d_kv']
    shape, layout = chance.choice(MESHES)
    sentences = max(2 if shape.startswith('data') else 1, round(gflop * 1e9 / flops_a_token / length))
    return {'model': model, 'data': {'format': 'text', 'batch_sentences': sentences, 'max_target_length': length},
            'optimizer': {'kind': chance.choice(['adam', 'adafactor'])}, 'mesh': {'shape': shape, 'layout': layout}}


def about(config):
    """The model in words; the batch is said elsewhere."""
    model = config['model']
    return (f"{model['layers']} x {model['d_model']}, {model['heads']} x {model['d_kv']}, d_ff {model['d_ff']} {'*'.join(model['activation'])}, "
            f"vocab {model['vocab']}{' tied' if model['tied_softmax'] else ''}, {model['positions']}, {config['optimizer']['kind']}")


def batch(config):
    return f"{config['data']['batch_sentences']} x {config['data']['max_target_length']}"


def toml(config):
    return ''.join(f'[{section}]\n' + ''.join(f'{key} = {json.dumps(value)}\n' for key, value in keys.items()) for section, keys in config.items())
