/** Rivals for chats: npm packages in this process, minijinja and transformers in other processes. */

import { spawnSync } from 'node:child_process'
import { existsSync } from 'node:fs'
import { createRequire } from 'node:module'
import { fileURLToPath } from 'node:url'
import { cargoPeer, rustProgram } from './cargo-peer.js'
import type { Conversation } from './chat-corpus.js'
import { ROOT, type Sample, say } from './measure.js'
import { Peer, PYTHON_ENVIRONMENT, type Skipped } from './peer.js'
import { installTrl } from './trl.js'

/** One pass of a peer over the corpus. */
export interface Pass {
  readonly ms: number
  /** Of everything that came out. */
  readonly digest: string
}

/** Packages of npm. */
export interface NodeRivals {
  /** Renders with `@huggingface/jinja`. */
  render(conversation: Conversation): string
  /** Encodes with `@huggingface/tokenizers`. */
  encode(text: string): readonly number[]
  /** Encodes with `tokenizers`, which answers from another thread. */
  encodeAsync(text: string): Promise<readonly number[]>
  readonly versions: Readonly<Record<string, string>>
}

const JINJA = '@huggingface/jinja'
const TOKENIZERS_JS = '@huggingface/tokenizers'
const TOKENIZERS = 'tokenizers'

/** The packages of benches/rival/node, fetched where they are missing. */
export function nodeRivals(template: string, tokenizerJson: string): NodeRivals | Skipped {
  const folder = new URL('benches/rival/node/', ROOT)
  if (!existsSync(new URL('node_modules/', folder))) {
    say('installing the rivals of npm under benches/rival/node, once')
    const made = spawnSync('npm', ['ci', '--no-audit', '--no-fund'], { cwd: folder, encoding: 'utf8' })
    if (made.status !== 0) return { skipped: `npm ci failed: ${made.stderr.trim().split('\n').at(-1)}` }
  }
  const require = createRequire(new URL('package.json', folder))
  const { Template } = require(JINJA)
  const { Tokenizer: JsTokenizer } = require(TOKENIZERS_JS)
  const { Tokenizer: NativeTokenizer } = require(TOKENIZERS)
  const compiled = new Template(template)
  const js = new JsTokenizer(JSON.parse(tokenizerJson), {})
  const native = NativeTokenizer.fromString(tokenizerJson)
  return {
    render: ({ messages, tools }) => compiled.render({ messages, tools }),
    encode: (text) => js.encode(text, { add_special_tokens: false }).ids,
    encodeAsync: async (text) => (await native.encode(text, null, { addSpecialTokens: false })).getIds(),
    versions: require('./package.json').dependencies,
  }
}

/** minijinja as it comes, and the crate `tokenizers`: answers `render` and `encode`. */
export function rustRival(folder: string): Peer | Skipped {
  const where = { manifest: 'benches/rival/rust/Cargo.toml', target: 'target/rival' }
  return cargoPeer({ what: 'the Rust rivals', ...where, program: 'rival' }, [folder])
}

/** Ours in Rust, without Node in between: answers `render`, `template`, `encode`, `rollout` and `whole`. */
export function rustOurs(folder: string): Peer | Skipped {
  return rustProgram('fulmar-bench', [folder])
}

/** transformers: answers `render` and `tokens`. */
export function transformersRival(folder: string): Peer | Skipped {
  const installed = installTrl()
  if ('skipped' in installed) return installed
  const program = fileURLToPath(new URL('benches/rival/transformers/chat.py', ROOT))
  return new Peer('transformers', installed.python, [program, folder], PYTHON_ENVIRONMENT)
}

/** Ours in WebAssembly: answers `render` and `tokens`. */
export function wasmOurs(folder: string): Peer | Skipped {
  if (!existsSync(new URL('wasm/fulmar_wasm_bg.wasm', ROOT)))
    return { skipped: 'wasm/ is not built: npm run build' }
  const program = fileURLToPath(new URL('./chat-wasm.js', import.meta.url))
  return new Peer('ours in WebAssembly', process.execPath, ['--conditions=fulmar-wasm', program, folder])
}

/** Contestants of a bench by name. */
export type Contestants = Record<string, () => Sample | Promise<Sample>>

/** Another process. */
export type PeerName = 'rust' | 'minijinja' | 'python' | 'wasm'

/** Requests to peers: a name for each, and the line that is sent. */
export const REQUESTS = [
  ['rust render', 'render'],
  ['rust template', 'template'],
  ['rust encode', 'encode'],
  ['rust rollout', 'rollout'],
  ['rust whole', 'whole'],
  ['minijinja render', 'render'],
  ['minijinja encode', 'encode'],
  ['python render', 'render'],
  ['python tokens', 'tokens'],
  ['wasm render', 'render'],
  ['wasm tokens', 'tokens'],
] as const

/** The peer of a request. */
export function peerOf(request: string): PeerName {
  return request.split(' ')[0] as PeerName
}

/** The other processes. */
export class Peers {
  readonly #peers: Readonly<Record<PeerName, Peer | Skipped>>

  constructor(peers: Readonly<Record<PeerName, Peer | Skipped>>) {
    this.#peers = peers
  }

  /** The first answer of each. */
  async greetings(): Promise<
    Partial<Record<PeerName, { versions?: Record<string, string>; firstMs?: number }>>
  > {
    const said: Partial<Record<PeerName, object>> = {}
    for (const [name, peer] of Object.entries(this.#peers)) {
      if (!('skipped' in peer)) said[name as PeerName] = (await peer.answer()) as object
    }
    return said
  }

  /** If true, it runs. */
  has(name: PeerName): boolean {
    return !('skipped' in this.#peers[name])
  }

  /** Reason that the peer of a request is not run. */
  skipped(request: string): Skipped {
    const peer = this.#peers[peerOf(request)]
    return peer && 'skipped' in peer ? peer : { skipped: '--no-rival' }
  }

  /** A pass of each request that a peer answers. */
  contestants(): Contestants {
    const asked = REQUESTS.filter(([name]) => this.has(peerOf(name)))
    return Object.fromEntries(asked.map(([name, request]) => [name, () => this.pass(peerOf(name), request)]))
  }

  /** One pass, as the peer tells it. */
  async run(name: PeerName, request: string): Promise<Pass> {
    const peer = this.#peers[name]
    if ('skipped' in peer) throw new Error(`${name} must run: got ${peer.skipped}`)
    return (await peer.ask(request)) as Pass
  }

  /** One pass as a sample. */
  async pass(name: PeerName, request: string): Promise<Sample> {
    const start = performance.now()
    const { ms } = await this.run(name, request)
    return { value: ms, rivalCpuMs: performance.now() - start }
  }

  [Symbol.dispose](): void {
    for (const peer of Object.values(this.#peers)) if (!('skipped' in peer)) peer[Symbol.dispose]()
  }
}
