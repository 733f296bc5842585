/**
 * Ours in WebAssembly, as a peer of benches/ts/chat.ts: `node --conditions=fulmar-wasm chat-wasm.js FOLDER` answers each
 * line, `render` or `tokens`, with a line of JSON. The first line that it says is how long the first rendering took.
 */

import { createInterface } from 'node:readline'

const start = performance.now()
const { OursInNode } = await import('./chat-ours.js')
const ours = new OursInNode(process.argv[2] ?? '')
const firstMs = ours.first()
console.log(JSON.stringify({ importMs: performance.now() - start - firstMs, firstMs }))

for await (const request of createInterface({ input: process.stdin })) {
  const { ms, digest } = request === 'render' ? ours.renderTexts() : ours.tokens()
  console.log(JSON.stringify({ ms, digest: digest() }))
}
