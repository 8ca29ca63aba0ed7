#!/usr/bin/env python3
"""The rows of tools/bench in JAX, on the processors that this process may use. Prints a line of JSON for each row.

  taskset -c 0-3 benchmarks/compare/jax_rows.py --only train/gpt --rounds 5

Shapes and models are those of peer.hpp. Each row is one function under jax.jit, with its state donated.
"""

import argparse
import json
import os
import re
import statistics
import time

os.environ["JAX_PLATFORMS"] = "cpu"

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402

KEY = jax.random.key(1)


def values(*shape):
    return jax.random.uniform(KEY, shape, minval=-1, maxval=1)


def called_with(function, *arguments):
    return lambda: jax.block_until_ready(function(*arguments))


def trained(step, state, *batch):
    """Runs a step that takes and returns `state`."""
    def run():
        nonlocal state
        state, loss = step(state, *batch)
        jax.block_until_ready((state, loss))
    return run


def gemm(n):
    return called_with(jax.jit(jnp.matmul), values(n, n), values(n, n))


def chain():
    return called_with(jax.jit(lambda x, mask, scale, shift: jax.nn.gelu(scale * x + shift) * mask + x),
                       values(1 << 24), values(1 << 24), 0.7, 0.1)


def softmax():
    return called_with(jax.jit(lambda x: jax.nn.softmax(x, -1)), values(4096, 1024))


def normalized(x, gain, bias):
    mean = x.mean(-1, keepdims=True)
    variance = ((x - mean) ** 2).mean(-1, keepdims=True)
    return (x - mean) * jax.lax.rsqrt(variance + 1e-5) * gain + bias


def layer_norm():
    return called_with(jax.jit(normalized), values(4096, 1024), values(1024), values(1024))


def causal_attention(q, k, v):
    """[batch, time, heads, width]."""
    time_steps = q.shape[1]
    scores = jnp.einsum("bthw,bshw->bhts", q, k) * q.shape[-1] ** -0.5
    scores = jnp.where(jnp.tril(jnp.ones((time_steps, time_steps), bool)), scores, -jnp.inf)
    return jnp.einsum("bhts,bshw->bthw", jax.nn.softmax(scores.astype(jnp.float32), -1).astype(v.dtype), v)


def attention(time_steps):
    q, k, v, g = (values(2, time_steps, 8, 64) for _ in range(4))
    return called_with(jax.jit(jax.value_and_grad(lambda q, k, v, g: (causal_attention(q, k, v) * g).sum(), (0, 1, 2))),
                       q, k, v, g)


def mlp_step():
    batch, width, hidden = 256, 1024, 4096

    def predicted(model, x):
        for i, (w, b) in enumerate(model):
            x = (jax.nn.gelu(x) if i else x) @ w + b
        return x

    def step(model, x, target):
        loss, gradient = jax.value_and_grad(lambda m: ((predicted(m, x) - target) ** 2).mean())(model)
        return jax.tree.map(lambda p, g: p - 0.01 * g, model, gradient), loss

    model = [(values(m, n) * m ** -0.5, values(n)) for m, n in ((width, hidden), (hidden, hidden), (hidden, width))]
    return trained(jax.jit(step, donate_argnums=0), model, values(batch, width), values(batch, width))


def gpt_step(dtype):
    batch, steps, classes, d, heads, layers = 8, 256, 4096, 256, 4, 4

    def block(x, p):
        qkv = normalized(x, *p["norm1"]) @ p["qkv"][0] + p["qkv"][1]
        q, k, v = jnp.split(qkv.reshape(batch, steps, 3 * heads, d // heads), 3, 2)
        x = x + causal_attention(q, k, v).reshape(x.shape) @ p["out"][0] + p["out"][1]
        return x + jax.nn.gelu(normalized(x, *p["norm2"]) @ p["up"][0] + p["up"][1]) @ p["down"][0] + p["down"][1]

    def loss_of(model, inputs, targets):
        model = jax.tree.map(lambda p: p.astype(dtype), model)
        x = model["tokens"][inputs] + model["positions"]
        for p in model["blocks"]:
            x = block(x, p)
        logits = (normalized(x, *model["norm"]) @ model["head"]).astype(jnp.float32)
        chosen = jnp.take_along_axis(logits, targets[..., None], -1)[..., 0]
        return (jax.nn.logsumexp(logits, -1) - chosen).mean()

    def step(state, inputs, targets):
        model, first, second, count = state
        loss, gradient = jax.value_and_grad(loss_of)(model, inputs, targets)
        count += 1
        first = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, first, gradient)
        second = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, second, gradient)
        rate = 3e-4 * jnp.sqrt(1 - 0.999 ** count) / (1 - 0.9 ** count)
        model = jax.tree.map(lambda p, m, v: p - rate * m / (jnp.sqrt(v) + 1e-8) - 3e-6 * p, model, first, second)
        return (model, first, second, count), loss

    def linear(m, n):
        return values(m, n) * m ** -0.5, jnp.zeros(n)

    def norm():
        return jnp.ones(d), jnp.zeros(d)

    def layer():
        return {"norm1": norm(), "norm2": norm(), "qkv": linear(d, 3 * d), "out": linear(d, d),
                "up": linear(d, 4 * d), "down": linear(4 * d, d)}

    model = {"tokens": 0.02 * values(classes, d), "positions": 0.02 * values(steps, d), "norm": norm(),
             "head": values(d, classes) * d ** -0.5, "blocks": [layer() for _ in range(layers)]}
    zeros = jax.tree.map(jnp.zeros_like, model)
    tokens = jnp.arange(batch * steps).reshape(batch, steps)
    return trained(jax.jit(step, donate_argnums=0), (model, zeros, jax.tree.map(jnp.copy, zeros), jnp.float32(0)),
                   (tokens * 7919 + 13) % classes, (tokens * 104729 + 7) % classes)


ROWS = {"gemm/1024": lambda: gemm(1024), "gemm/2048": lambda: gemm(2048), "chain/16M": chain,
        "softmax/4096x1024": softmax, "layer_norm/4096x1024": layer_norm,
        "attention/256": lambda: attention(256), "attention/1024": lambda: attention(1024),
        "train/mlp": mlp_step, "train/gpt": lambda: gpt_step(jnp.float32),
        "train/gpt_bf16": lambda: gpt_step(jnp.bfloat16)}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", metavar="REGEX")
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--seconds", type=float, default=20, help="of a row, at most, and at least three rounds")
    arguments = parser.parse_args()
    threads = len(os.sched_getaffinity(0))
    for name, prepare in ROWS.items():
        if not re.search(arguments.only, f"{name}/t{threads}"):
            continue
        run = prepare()
        run()  # compiles
        start, times = time.perf_counter(), []
        while len(times) < arguments.rounds and (len(times) < 3 or time.perf_counter() - start < arguments.seconds):
            begin = time.perf_counter()
            run()
            times.append(time.perf_counter() - begin)
        report = {"name": f"{name}/t{threads}", "peer": "jax", "seconds": statistics.median(times)}
        print(json.dumps(report), flush=True)


if __name__ == "__main__":
    main()
