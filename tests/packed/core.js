/** Uses the installed package: `core.js native|wasm`. */

import assert from 'node:assert/strict'
import { describeBuild, FulmarError, Rng } from 'fulmar'
import { renderUntrusted } from 'fulmar/chat'
import { fromParquet, toParquet } from 'fulmar/table'
import { checkPolicy } from 'fulmar/testing'

assert.equal(describeBuild().backend, process.argv[2])
assert.equal(Rng.fromSeed(0).nextU32(), 0x6627e8d5)
assert.throws(
  () => Rng.fromSeed(-1),
  (error) => error instanceof FulmarError && error.code === 'OUT_OF_RANGE',
)
for (const entry of [fromParquet, toParquet, checkPolicy]) assert.equal(typeof entry, 'function')

// The sandbox: a worker thread with a WebAssembly instance, which ends at its limits.
const messages = [{ role: 'user', content: 'hi' }]
const { text } = await renderUntrusted('{{ messages[0].content }}!', { messages }, { timeoutMs: 60_000 })
assert.equal(text, 'hi!')
const large = '{% set n = namespace(x="a" * 99) %}{% for i in range(99) %}{% set n.x = n.x ~ n.x %}{% endfor %}'
await assert.rejects(renderUntrusted(large, {}, { timeoutMs: 60_000 }), { code: 'LIMIT_EXCEEDED' })
const endless = '{% for i in range(99999) %}{% for j in range(99999) %}{{ i * j }}{% endfor %}{% endfor %}'
await assert.rejects(renderUntrusted(endless, {}, { timeoutMs: 50, steps: 200_000_000 }), { code: 'TIMEOUT' })
