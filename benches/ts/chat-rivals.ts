/** What others have for chats: packages of npm in this process, minijinja and transformers in processes beside it. */

import { spawnSync } from 'node:child_process'
import { existsSync } from 'node:fs'
import { createRequire } from 'node:module'
import { fileURLToPath } from 'node:url'
import type { Conversation } from './chat-corpus.js'
import { ROOT, say } from './measure.js'
import { Peer, PYTHON_ENVIRONMENT } from './peer.js'
import { installTrl } from './trl.js'

/** Why a rival is not run. */
export interface Skipped {
  readonly skipped: string
}

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
export async function nodeRivals(template: string, tokenizerJson: string): Promise<NodeRivals | Skipped> {
  const folder = new URL('benches/rival/node/', ROOT)
  if (!existsSync(new URL('node_modules/', folder))) {
    say('installing the rivals of npm under benches/rival/node, once')
    const made = spawnSync('npm', ['ci', '--no-audit', '--no-fund'], { cwd: folder, encoding: 'utf8' })
    if (made.status !== 0) return { skipped: `npm ci failed: ${made.stderr.trim().split('\n').at(-1)}` }
  }
  const require = createRequire(new URL('package.json', folder))
  const { Template } = await import(require.resolve(JINJA))
  const { Tokenizer: JsTokenizer } = await import(require.resolve(TOKENIZERS_JS))
  const { Tokenizer: NativeTokenizer } = require(TOKENIZERS)
  const compiled = new Template(template)
  const js = new JsTokenizer(JSON.parse(tokenizerJson), {})
  const native = NativeTokenizer.fromString(tokenizerJson)
  return {
    render: ({ messages, tools }) => compiled.render({ messages, tools }),
    encode: (text) => js.encode(text, { add_special_tokens: false }).ids,
    encodeAsync: async (text) => (await native.encode(text, null, { addSpecialTokens: false })).getIds(),
    versions: Object.fromEntries(
      [JINJA, TOKENIZERS_JS, TOKENIZERS].map((name) => [name, require(`${name}/package.json`).version]),
    ),
  }
}

/** minijinja as it comes, and the crate `tokenizers`: answers `render` and `encode`. */
export function rustRival(folder: string): Peer | Skipped {
  const manifest = fileURLToPath(new URL('benches/rival/rust/Cargo.toml', ROOT))
  return built('the Rust rivals', manifest, 'target/rival', 'rival', folder)
}

/** Ours in Rust, without Node in between: answers `render`, `template` and `encode`. */
export function rustOurs(folder: string): Peer | Skipped {
  const manifest = fileURLToPath(new URL('benches/rust/Cargo.toml', ROOT))
  return built('ours in Rust', manifest, 'target', 'fulmar-bench', folder)
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

function built(
  what: string,
  manifest: string,
  target: string,
  program: string,
  folder: string,
): Peer | Skipped {
  say(`building ${what}`)
  const out = fileURLToPath(new URL(target, ROOT))
  const args = ['build', '--release', '--quiet', '--manifest-path', manifest, '--target-dir', out]
  const { status, stderr } = spawnSync('cargo', args, { encoding: 'utf8' })
  if (status !== 0) return { skipped: `cargo failed: ${stderr?.trim().split('\n')[0] ?? 'not installed'}` }
  return new Peer(what, `${out}/release/${program}`, [folder])
}
