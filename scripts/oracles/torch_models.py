#!/usr/bin/env python3
"""Makes tests/parity/data/*.safetensors: two tiny models in PyTorch, with weights, logits, losses and gradients, ten
Adam steps, and ten Adafactor steps by a NumPy oracle. Everything is computed in f64 from f32 weights.

Needs PyTorch and NumPy (Debian: python3-torch), as test oracle only; the files are checked in so that the tests run
without it. Usage: scripts/oracles/torch_models.py [FOLDER]"""
import json
import math
import pathlib
import struct
import sys

try:
    import numpy as np
    import torch
    import torch.nn.functional as F
except ImportError as error:
    print(f"SKIP torch_models: {error}")
    sys.exit(77)

STEPS = 10
RATE = 0.01
torch.set_default_dtype(torch.float64)


# ---------------------------------------------------------------------------------------------- safetensors

DTYPES = {np.dtype("float32"): "F32", np.dtype("float64"): "F64", np.dtype("int32"): "I32"}


def save(path, tensors, metadata):
    """The format is eight bytes of length, a JSON header, and the data."""
    header, offset = {"__metadata__": metadata}, 0
    for name, array in tensors.items():
        header[name] = {"dtype": DTYPES[array.dtype], "shape": list(array.shape),
                        "data_offsets": [offset, offset + array.nbytes]}
        offset += array.nbytes
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for array in tensors.values():
            file.write(np.ascontiguousarray(array).tobytes())


# ---------------------------------------------------------------------------------------------- layers

def rms_norm(x, w, name):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * w[name + "/scale"]


def layer_norm(x, w, name):
    return F.layer_norm(x, x.shape[-1:], w[name + "/scale"], w[name + "/bias"], 1e-6)


def attention(x, memory, w, name, bias):
    """x [b,l,m], memory [b,n,m], weights [m,h,k], bias broadcasting to [b,h,l,n]."""
    m, h, k = w[name + "/q"].shape

    def heads(t, part):
        return F.linear(t, w[f"{name}/{part}"].reshape(m, h * k).T).unflatten(2, (h, k)).transpose(1, 2)
    logits = heads(x, "q") @ heads(memory, "k").transpose(2, 3) / math.sqrt(k) + bias
    mixed = (F.softmax(logits, -1) @ heads(memory, "v")).transpose(1, 2).flatten(2)
    return F.linear(mixed, w[name + "/o"].reshape(h * k, m).T)


def bucket(distance, buckets, reach, bidirectional):
    """T5's buckets, for a tensor of memory - query."""
    result, back = torch.zeros_like(distance), -distance
    if bidirectional:
        buckets //= 2
        result = result + (back < 0).long() * buckets
        back = back.abs()
    else:
        back = back.clamp(min=0)
    exact = buckets // 2
    far = exact + (torch.log(back.clamp(min=1) / exact) / math.log(reach / exact) * (buckets - exact)).long()
    return result + torch.where(back < exact, back, far.clamp(max=buckets - 1))


def relative_bias(table, queries, keys, reach, bidirectional):
    distance = torch.arange(keys)[None, :] - torch.arange(queries)[:, None]
    return table[:, bucket(distance, table.shape[1], reach, bidirectional)][None]


def hidden(visible):
    return torch.zeros(visible.shape).masked_fill(~visible, -math.inf)


def cross_entropy(logits, labels, smoothing, z_loss):
    """Sum over the labels that are not 0, and their number."""
    loss = F.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="none", label_smoothing=smoothing)
    loss = loss + z_loss * torch.logsumexp(logits, -1).flatten().pow(2)
    real = labels.flatten() != 0
    return loss[real].sum(), real.sum()


# ---------------------------------------------------------------------------------------------- models

class EncoderDecoder:
    """Relative positions, RMS norm, ReLU, one tied embedding, label smoothing and z-loss."""
    name = "encoder_decoder"
    layers, m, h, k, f, vocab, buckets, reach = 2, 16, 3, 4, 24, 29, 8, 6
    source = [[5, 9, 3, 22, 1], [7, 28, 1, 0, 0]]
    target = [[4, 2, 17, 1, 0, 0], [11, 4, 8, 20, 19, 1]]

    def shapes(self):
        m, h, k, f = self.m, self.h, self.k, self.f
        result = {"embedding/table": (self.vocab, m)}
        for stack in "encoder", "decoder":
            result[stack + "/relative_bias"] = (h, self.buckets)
            result[stack + "/final_norm/scale"] = (m,)
            for i in range(self.layers):
                parts = ["self_attention", "cross_attention"][:1 if stack == "encoder" else 2]
                base = f"{stack}/layer_{i:03}/"
                for part in parts:
                    result.update({f"{base}{part}/{n}": (m, h, k) for n in "qkv"})
                    result[f"{base}{part}/o"] = (h, k, m)
                result.update({f"{base}ffn/wi": (m, f), f"{base}ffn/wo": (f, m)})
                result.update({f"{base}{part}/norm/scale": (m,) for part in parts + ["ffn"]})
        return result

    def inputs(self):
        return {"source": self.source, "target": self.target}

    def forward(self, w):
        source, target = torch.tensor(self.source), torch.tensor(self.target)
        s, t = source.shape[1], target.shape[1]
        padding = hidden(source != 0)[:, None, None, :]
        x = w["embedding/table"][source] * math.sqrt(self.m)
        bias = relative_bias(w["encoder/relative_bias"], s, s, self.reach, True) + padding
        for i in range(self.layers):
            x = self.layer(x, w, f"encoder/layer_{i:03}/", bias, None, None)
        memory = rms_norm(x, w, "encoder/final_norm")
        x = w["embedding/table"][F.pad(target[:, :-1], (1, 0))] * math.sqrt(self.m)
        bias = relative_bias(w["decoder/relative_bias"], t, t, self.reach, False)
        bias = bias + hidden(torch.ones(t, t).tril() == 1)
        for i in range(self.layers):
            x = self.layer(x, w, f"decoder/layer_{i:03}/", bias, memory, padding)
        logits = F.linear(rms_norm(x, w, "decoder/final_norm"), w["embedding/table"])
        return logits, *cross_entropy(logits, target, 0.1, 1e-3)

    def layer(self, x, w, base, bias, memory, padding):
        h = rms_norm(x, w, base + "self_attention/norm")
        x = x + attention(h, h, w, base + "self_attention", bias)
        if memory is not None:
            h = rms_norm(x, w, base + "cross_attention/norm")
            x = x + attention(h, memory, w, base + "cross_attention", padding)
        h = rms_norm(x, w, base + "ffn/norm")
        return x + F.linear(F.relu(F.linear(h, w[base + "ffn/wi"].T)), w[base + "ffn/wo"].T)


class LanguageModel:
    """Learned positions, layer norm after each sum, a gated feed-forward, its own output table, packed rows."""
    name = "lm"
    layers, m, h, k, f, vocab, positions = 2, 12, 2, 5, 20, 23, 9
    target = [[3, 7, 2, 1, 9, 9, 1], [4, 1, 8, 6, 1, 0, 0]]
    segment = [[1, 1, 1, 1, 2, 2, 2], [1, 1, 2, 2, 2, 0, 0]]
    position = [[0, 1, 2, 3, 0, 1, 2], [0, 1, 0, 1, 2, 0, 0]]

    def shapes(self):
        m, h, k, f = self.m, self.h, self.k, self.f
        result = {"embedding/table": (self.vocab, m), "embedding/positions": (self.positions, m),
                  "softmax/table": (self.vocab, m)}
        for i in range(self.layers):
            base = f"decoder/layer_{i:03}/"
            result.update({f"{base}self_attention/{n}": (m, h, k) for n in "qkv"})
            result[f"{base}self_attention/o"] = (h, k, m)
            result.update({f"{base}ffn/wi_0": (m, f), f"{base}ffn/wi_1": (m, f), f"{base}ffn/wo": (f, m)})
            for part in "self_attention", "ffn":
                result.update({f"{base}{part}/norm/{n}": (m,) for n in ("scale", "bias")})
        return result

    def inputs(self):
        return {"target": self.target, "segment": self.segment, "position": self.position}

    def forward(self, w):
        target, segment = torch.tensor(self.target), torch.tensor(self.segment)
        t = target.shape[1]
        starts = F.pad(segment[:, 1:] != segment[:, :-1], (1, 0), value=True)
        ids = F.pad(target[:, :-1], (1, 0)).masked_fill(starts, 0)
        visible = (segment[:, :, None] == segment[:, None, :]) & (torch.ones(t, t).tril() == 1)
        bias = hidden(visible)[:, None]
        x = w["embedding/table"][ids] + w["embedding/positions"][torch.tensor(self.position)]
        for i in range(self.layers):
            base = f"decoder/layer_{i:03}/"
            x = layer_norm(x + attention(x, x, w, base + "self_attention", bias), w, base + "self_attention/norm")
            gated = F.silu(F.linear(x, w[base + "ffn/wi_0"].T)) * F.linear(x, w[base + "ffn/wi_1"].T)
            x = layer_norm(x + F.linear(gated, w[base + "ffn/wo"].T), w, base + "ffn/norm")
        logits = F.linear(x, w["softmax/table"])
        return logits, *cross_entropy(logits, target, 0, 0)


# ---------------------------------------------------------------------------------------------- optimizers

def gradients(model, weights):
    """Logits, sum of losses, number of tokens, gradients of the sum."""
    w = {name: torch.tensor(value, requires_grad=True) for name, value in weights.items()}
    logits, loss, count = model.forward(w)
    loss.backward()
    return logits.detach().numpy(), loss.item(), count.item(), {n: t.grad.numpy() for n, t in w.items()}


def adam(model, weights, decay):
    """torch.optim.Adam, or AdamW when there is a weight decay; the mean losses and the parameters after all steps."""
    w = {name: torch.tensor(value, requires_grad=True) for name, value in weights.items()}
    kind = torch.optim.AdamW if decay else torch.optim.Adam
    optimizer = kind(list(w.values()), RATE, betas=(0.9, 0.98), eps=1e-9, weight_decay=decay)
    losses = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        _, loss, count = model.forward(w)
        (loss / count).backward()
        optimizer.step()
        losses.append((loss / count).item())
    return losses, {n: t.detach().numpy() for n, t in w.items()}


def rms(x):
    return np.sqrt(np.mean(np.square(x)))


class Adafactor:
    """The update of Mesh-TensorFlow, factored from dimensions of 8 on; optionally with beta1."""

    def __init__(self, beta1):
        self.beta1, self.slots = beta1, {}

    def update(self, name, w, g, step):
        square = g * g + 1e-30
        decay = 1 - (step + 1.0) ** -0.8
        order = sorted(range(w.ndim), key=lambda d: -w.shape[d])  # stable: the first of equal dimensions

        def slot(kind, fresh):
            old = self.slots.get((name, kind), np.zeros_like(fresh))
            self.slots[name, kind] = decay * old + (1 - decay) * fresh
            return self.slots[name, kind]
        if w.ndim >= 2 and w.shape[order[1]] >= 8:
            a, b = order[:2]
            row = np.expand_dims(slot("r", square.mean(axis=a)), a)
            column = np.expand_dims(slot("c", square.mean(axis=b)), b)
            x = g / np.sqrt(row / row.mean(axis=b, keepdims=True)) / np.sqrt(column)
        else:
            x = g / np.sqrt(slot("v", square))
        x = x / max(1.0, rms(x))
        x = x * RATE * max(rms(w), 1e-3)
        if self.beta1:
            old = self.slots.get((name, "m"), np.zeros_like(x))
            x = self.slots[name, "m"] = self.beta1 * old + (1 - self.beta1) * x
        return w - x


def adafactor(model, weights, beta1):
    optimizer, losses = Adafactor(beta1), []
    for step in range(STEPS):
        _, loss, count, grads = gradients(model, weights)
        losses.append(loss / count)
        weights = {n: optimizer.update(n, w, grads[n] / count, step) for n, w in weights.items()}
    return losses, weights


# ---------------------------------------------------------------------------------------------- main

def initial(model):
    random = np.random.RandomState(7)
    weights = {}
    for name, shape in model.shapes().items():
        value = random.standard_normal(shape) * 0.3
        if name.endswith("scale"):
            value = 1 + 0.2 * value
        weights[name] = value.astype(np.float32).astype(np.float64)
    return weights


def make(model, folder, decay, beta1):
    weights = initial(model)
    tensors = {"input/" + n: np.array(v, np.int32) for n, v in model.inputs().items()}
    tensors.update({"weight/" + n: v.astype(np.float32) for n, v in weights.items()})
    logits, loss, count, grads = gradients(model, weights)
    tensors["logits"] = logits
    tensors["loss"] = np.array([loss, count], np.float64)
    tensors.update({"gradient/" + n: g for n, g in grads.items()})
    for kind, (losses, after) in {"adam": adam(model, weights, decay),
                                  "adafactor": adafactor(model, weights, beta1)}.items():
        tensors[kind + "/losses"] = np.array(losses)
        tensors.update({f"{kind}/after/{n}": w for n, w in after.items()})
    path = folder / (model.name + ".safetensors")
    save(path, tensors, {"maker": "scripts/oracles/torch_models.py", "torch": torch.__version__})
    print(f"{path}: {path.stat().st_size} bytes, loss {loss / count:.4f}, after Adam {tensors['adam/losses'][-1]:.4f}, "
          f"after Adafactor {tensors['adafactor/losses'][-1]:.4f}")


def main():
    home = pathlib.Path(__file__).resolve().parents[2] / "tests" / "parity" / "data"
    folder = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else home
    folder.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(0)
    make(EncoderDecoder(), folder, decay=0, beta1=0)
    make(LanguageModel(), folder, decay=0.05, beta1=0.9)


if __name__ == "__main__":
    main()
