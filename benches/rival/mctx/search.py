"""The rival of benches/ts/tree.ts: mctx over a table, compiled by JAX for processors.

    python search.py

Each line of standard input is a request, `{kind: "result" | "run", name, request, repeats}`; `request` tells policy and sizes.
"""

from answering import serve

import functools

import jax
import jax.numpy as jnp
import mctx
import numpy as np


def mixed(count, salt):
    """20 bits of each place, as benches/ts/tree.ts computes them."""
    places = np.arange(1, count + 1, dtype=np.uint32)
    with np.errstate(over="ignore"):
        bits = places * np.uint32(0x9E3779B1) ^ np.uint32((salt + 1) * 0x85EBCA6B & 0xFFFFFFFF)
        bits = (bits ^ (bits >> 15)) * np.uint32(0x2C1B3C6D)
        bits = (bits ^ (bits >> 12)) * np.uint32(0x297A2D39)
        return (bits ^ (bits >> 15)) >> 12


def numbers(count, salt, scale=1):
    return np.float32(scale * (mixed(count, salt) / 2**20 - 0.5))


@functools.cache
def searcher(policy, numActions, numSimulations, batch, numStates):
    size, shape = numStates * numActions, (numStates, numActions)
    nexts = jnp.asarray((mixed(size, 1) % numStates).astype(np.int32).reshape(shape))
    rewards, logits = (jnp.asarray(numbers(size, salt, scale).reshape(shape)) for salt, scale in ((2, 1), (3, 2)))
    values = jnp.asarray(numbers(numStates, 4))

    def step(params, key, action, state):
        following = nexts[state, action]
        discount = jnp.full(state.shape, 0.984375, jnp.float32)
        outcome = mctx.RecurrentFnOutput(
            reward=rewards[state, action], discount=discount, prior_logits=logits[following], value=values[following]
        )
        return outcome, following

    fixed = {"gumbel_scale": 0.0} if policy == "gumbel" else {"dirichlet_fraction": 0.0}
    search = mctx.gumbel_muzero_policy if policy == "gumbel" else mctx.muzero_policy

    @jax.jit
    def run(key, states):
        root = mctx.RootFnOutput(prior_logits=logits[states], value=values[states], embedding=states)
        found = search((), key, root, step, numSimulations, **fixed)
        return found.action, found.action_weights, found.search_tree.summary().visit_counts

    states = jnp.arange(batch, dtype=jnp.int32) % numStates
    key = jax.random.PRNGKey(0)
    jax.block_until_ready(run(key, states))
    return lambda: jax.block_until_ready(run(key, states))


def result(name, request):
    return {"values": np.asarray(searcher(**request)()[2]).reshape(-1).tolist()}


def run(name, request, repeats):
    search = searcher(**request)
    for _ in range(repeats):
        search()


serve({"result": result, "run": run}, versions={"mctx": mctx.__version__, "jax": jax.__version__})
