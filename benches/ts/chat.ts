/**
 * Chats to text, ids and masks: 1,000 conversations of 4 to 40 messages, a third with tools, 7.5 MB, seeded. Ours beside
 * minijinja and the crate tokenizers in Rust, npm's packages on Node, transformers in Python; goals 1, 2, 3 and 17.
 */

import { copyFileSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { gzipSync } from 'node:zlib'
import type { Message } from 'fulmar'
import { chatCorpus } from './chat-corpus.js'
import { type OurPass, OursInNode } from './chat-ours.js'
import {
  nodeRivals,
  type Pass,
  rustOurs,
  rustRival,
  type Skipped,
  transformersRival,
  wasmOurs,
} from './chat-rivals.js'
import { alternate, type Figure, type Goal, hand, ROOT, readOptions, type Sample, say } from './measure.js'
import type { Peer } from './peer.js'

const SEED = 1
const WARMUP = 2
/** Turns of the rollout that grows by bridges. */
const NUM_TURNS = 40
const MODULE_GZ_MB_GOAL = 1
const FIRST_CALL_MS_GOAL = 15

const options = readOptions({ rounds: 15 })
const folder = mkdtempSync(join(tmpdir(), 'fulmar-bench-'))
const plainFolder = mkdtempSync(join(tmpdir(), 'fulmar-bench-'))
try {
  hand(await measure())
} finally {
  for (const made of [folder, plainFolder]) rmSync(made, { recursive: true, force: true })
}

async function measure() {
  const source = writeInputs()
  const ours = new OursInNode(folder)
  const none: Skipped = { skipped: '--no-rival' }
  const node = options.rival ? await nodeRivals(source.plain, source.tokenizer) : none
  using peers = new Peers({
    rust: rustOurs(folder),
    minijinja: options.rival ? rustRival(plainFolder) : none,
    python: options.rival ? transformersRival(folder) : none,
    wasm: wasmOurs(folder),
  })
  const greetings = await peers.greetings()
  const texts = ours.corpus.map(({ messages, tools = [] }) => ours.renderer.renderText(messages, { tools }))
  say('comparing outputs')
  const checks = await compare(ours, peers, node, texts)

  const encode = (text: string) => ours.tokenizer.encode(text, { addedTokens: true })
  const contestants: Record<string, () => Sample | Promise<Sample>> = {
    nodeText: () => sampleOf(ours.renderTexts()),
    nodeTemplate: () => sampleOf(ours.renderTemplate()),
    nodeTokens: () => sampleOf(ours.tokens()),
    nodeTemplateTokens: () => sampleOf(ours.templateTokens()),
    nodeEncode: () => time(() => each(texts, encode)),
    ...rolloutContestants(ours),
  }
  if (!('skipped' in node)) {
    contestants.hfJinja = () => time(() => each(ours.corpus, node.render))
    contestants.npmTokenizers = async () => {
      const start = performance.now()
      for (const text of texts) await node.encodeAsync(text)
      return { value: performance.now() - start }
    }
    // Minutes for the whole corpus: a twentieth of it, and the figure says so.
    contestants.hfTokenizers = () => time(() => each(sliceOf(texts), node.encode))
    contestants.nodeEncodeSlice = () => time(() => each(sliceOf(texts), encode))
  }
  for (const [name, request] of REQUESTS) {
    const [peer] = name.split(' ')
    if (peers.has(peer as PeerName)) contestants[name] = () => peers.pass(peer as PeerName, request)
  }
  const rounds = await alternate(contestants, { ...options, warmup: WARMUP })

  const skippedOf: Record<string, Skipped | undefined> = {
    'minijinja render': peers.skipped('minijinja'),
    'minijinja encode': peers.skipped('minijinja'),
    'python render': peers.skipped('python'),
    'python tokens': peers.skipped('python'),
    hfJinja: 'skipped' in node ? node : undefined,
    npmTokenizers: 'skipped' in node ? node : undefined,
    hfTokenizers: 'skipped' in node ? node : undefined,
  }
  const figure = (work: string, own: string, rival: string, name: string, goal?: Goal): Figure[] => {
    if (!(own in contestants)) return []
    const { cold, warm } = rounds.of(own)
    const beside = contestants[rival] ? { name, samples: rounds.of(rival).warm } : (skippedOf[rival] ?? none)
    const coldRival = contestants[rival] ? { rival: rounds.of(rival).cold } : {}
    return [
      {
        work,
        unit: 'ms',
        ours: warm,
        rival: beside,
        ...(goal && { goal }),
        cold: { ours: cold, ...coldRival },
      },
    ]
  }
  const figures = [
    ...figure('text, Rust, the table of Qwen3', 'rust render', 'minijinja render', 'minijinja', {
      atLeast: 3,
    }),
    ...figure('text, Rust, the table of Qwen3', 'rust render', 'python render', 'transformers', {
      atLeast: 20,
    }),
    ...figure('text, Rust, the Jinja template', 'rust template', 'minijinja render', 'minijinja'),
    ...figure('objects to text, Node, the table', 'nodeText', 'hfJinja', '@huggingface/jinja', {
      atLeast: 15,
    }),
    ...figure('objects to text, Node, the template', 'nodeTemplate', 'hfJinja', '@huggingface/jinja'),
    ...figure('objects to text, WebAssembly, the table', 'wasm render', 'hfJinja', '@huggingface/jinja', {
      atLeast: 4,
    }),
    ...figure('objects to ids and masks, Node, the table', 'nodeTokens', 'python tokens', 'transformers', {
      atLeast: 10,
    }),
    ...figure(
      'objects to ids and masks, Node, the template',
      'nodeTemplateTokens',
      'python tokens',
      'transformers',
      { atLeast: 10 },
    ),
    ...figure('objects to ids and masks, WebAssembly', 'wasm tokens', 'python tokens', 'transformers'),
    ...figure('text to ids, Rust', 'rust encode', 'minijinja encode', 'tokenizers, the crate'),
    ...figure('text to ids, Node', 'nodeEncode', 'npmTokenizers', 'tokenizers, npm'),
    ...figure('text to ids, Node, a twentieth', 'nodeEncodeSlice', 'hfTokenizers', '@huggingface/tokenizers'),
    ...figure(`${NUM_TURNS} turns by bridges, Node`, 'bridges', 'onePass', 'one pass over the whole', {
      atMost: 1.2,
    }),
  ]
  const { size, firstMs } = { size: moduleSize(), firstMs: greetings.wasm?.firstMs }
  const notes = [
    `${ours.corpus.length} conversations, ${(texts.join('').length / 1e6).toFixed(1)} million characters of text; times are of a whole pass on one thread`,
    'transformers is timed in processor time, all others by the clock',
    'the template is our built-in qwen3; for minijinja and @huggingface/jinja without its generation tags, which they do not know',
    ...(size === undefined
      ? []
      : [
          `the whole WebAssembly module has ${size.toFixed(2)} MB behind gzip -9: ${verdict(size, MODULE_GZ_MB_GOAL, 'MB')}`,
        ]),
    ...(firstMs === undefined
      ? []
      : [
          `its first rendering takes ${firstMs.toFixed(1)} ms after the import: ${verdict(firstMs, FIRST_CALL_MS_GOAL, 'ms')}`,
        ]),
    rounds.disturbance,
  ]
  const versions = {
    ...('skipped' in node ? {} : node.versions),
    ...greetings.minijinja?.versions,
    ...greetings.python?.versions,
  }
  return { setting: { seed: SEED, threads: 1, turns: NUM_TURNS }, checks, figures, notes, versions }
}

/** The corpus, the template with and without its tags, and a tokenizer, where peers read them. */
function writeInputs() {
  const file = (path: string) => fileURLToPath(new URL(path, ROOT))
  const tagged = readFileSync(file('crates/fulmar-template/src/builtin/qwen3.jinja'), 'utf8')
  const plain = tagged.replaceAll(/\{%-? *(?:end)?generation *-?%\}/g, '')
  const corpus = JSON.stringify(chatCorpus(SEED))
  for (const [place, template] of [
    [folder, tagged],
    [plainFolder, plain],
  ] as const) {
    writeFileSync(join(place, 'corpus.json'), corpus)
    writeFileSync(join(place, 'template.jinja'), template)
    copyFileSync(file('tests/golden/tokenizer/qwen2/tokenizer.json'), join(place, 'tokenizer.json'))
  }
  return { plain, tokenizer: readFileSync(join(folder, 'tokenizer.json'), 'utf8') }
}

/** Refuses to go on where two sides disagree about a single byte. */
async function compare(
  ours: OursInNode,
  peers: Peers,
  node: Awaited<ReturnType<typeof nodeRivals>>,
  texts: readonly string[],
) {
  const checks: string[] = []
  const same = (what: string, wanted: unknown, got: unknown) => {
    if (wanted !== got) throw new Error(`${what} must be equal: got ${got} for ${wanted}`)
    checks.push(`${what}: equal`)
  }
  const text = ours.renderTexts().digest()
  same('texts of the table and of the template', text, ours.renderTemplate().digest())
  const tokens = ours.tokens().digest()
  same('ids and masks of the table and of the template', tokens, ours.templateTokens().digest())
  for (const [name, request] of REQUESTS) {
    const peer = name.split(' ')[0] as PeerName
    if (!peers.has(peer) || request === 'encode') continue
    const { digest } = await peers.run(peer, request)
    same(`${request} of ours and of ${peer}`, request === 'tokens' ? tokens : text, digest)
  }
  if (peers.has('minijinja'))
    same(
      'ids of ours and of the crate tokenizers',
      (await peers.run('rust', 'encode')).digest,
      (await peers.run('minijinja', 'encode')).digest,
    )
  if ('skipped' in node) return checks
  for (const [index, row] of ours.corpus.entries()) {
    if (node.render(row) !== texts[index])
      throw new Error(`@huggingface/jinja renders conversation ${index} differently`)
  }
  checks.push('texts of ours and of @huggingface/jinja: equal')
  for (const some of sliceOf(texts)) {
    const ids = [...ours.tokenizer.encode(some, { addedTokens: true }).ids].join()
    same('ids of ours and of npm’s tokenizers', ids, (await node.encodeAsync(some)).join())
    checks.pop()
    if (ids !== [...node.encode(some)].join()) throw new Error('@huggingface/tokenizers encodes differently')
  }
  return [...checks, 'ids of ours and of both tokenizers of npm, on a twentieth: equal']
}

/** Calls `work` with each item; what it answers is dropped. */
function each<T>(items: readonly T[], work: (item: T) => unknown): void {
  for (const item of items) work(item)
}

/** A twentieth of the texts. */
function sliceOf(texts: readonly string[]): readonly string[] {
  return texts.slice(0, texts.length / 20)
}

/** A conversation of many turns as a rollout plays it, ids in and out, and one rendering of the whole. */
function rolloutContestants({ renderer, tokenizer, corpus }: OursInNode) {
  const words = corpus
    .flatMap(({ messages }) => messages.filter(({ role }) => role === 'user'))
    .slice(0, 2 * NUM_TURNS)
  const turns = Array.from(
    { length: NUM_TURNS },
    (_, turn) => [String(words[2 * turn]?.content), String(words[2 * turn + 1]?.content)] as const,
  )
  const stop = renderer.stopIds.slice(0, 1)
  const answers = turns.map(([, answer]) => Uint32Array.of(...tokenizer.encode(answer).ids, ...stop))
  const repeat = (work: () => void) => () =>
    time(() => {
      for (let times = 0; times < 20; times++) work()
    })
  // Answers of a tool: crossing a user's question would make Qwen3 forget its reasoning, and the bridge refuses that.
  const ask = (turn: number, content: string): Message =>
    turn === 0 ? { role: 'user', content } : { role: 'tool', content }
  const whole = turns.flatMap(([question, answer], turn): Message[] => [
    ask(turn, question),
    { role: 'assistant', content: answer },
  ])
  return {
    bridges: repeat(() => {
      let prompt = renderer.render([ask(0, turns[0]?.[0] ?? '')], { addGenerationPrompt: true }).ids
      for (const [turn, answer] of answers.entries()) {
        renderer.parse(answer)
        const next = turns[turn + 1]
        if (!next) break
        const bridge = renderer.bridge(prompt, answer, [ask(turn + 1, next[0])])
        if (!bridge.ok) throw new Error(`turn ${turn} must be bridged: got ${bridge.reason}`)
        prompt = bridge.rendered.ids
      }
    }),
    onePass: repeat(() => {
      renderer.render(whole)
    }),
  }
}

type PeerName = 'rust' | 'minijinja' | 'python' | 'wasm'

const REQUESTS = [
  ['rust render', 'render'],
  ['rust template', 'template'],
  ['rust encode', 'encode'],
  ['minijinja render', 'render'],
  ['minijinja encode', 'encode'],
  ['python render', 'render'],
  ['python tokens', 'tokens'],
  ['wasm render', 'render'],
  ['wasm tokens', 'tokens'],
] as const

/** The programs beside this one. */
class Peers {
  readonly #peers: Readonly<Record<PeerName, Peer | Skipped>>

  constructor(peers: Readonly<Record<PeerName, Peer | Skipped>>) {
    this.#peers = peers
  }

  /** What each says first. */
  async greetings(): Promise<
    Partial<Record<PeerName, { versions?: Record<string, string>; firstMs?: number }>>
  > {
    const said: Partial<Record<PeerName, object>> = {}
    for (const [name, peer] of Object.entries(this.#peers)) {
      if (!('skipped' in peer)) said[name as PeerName] = (await peer.answer()) as object
    }
    return said
  }

  has(name: PeerName): boolean {
    return !('skipped' in this.#peers[name])
  }

  skipped(name: PeerName): Skipped | undefined {
    const peer = this.#peers[name]
    return 'skipped' in peer ? peer : undefined
  }

  async run(name: PeerName, request: string): Promise<Pass> {
    const peer = this.#peers[name]
    if ('skipped' in peer) throw new Error(`${name} must run: got ${peer.skipped}`)
    return (await peer.ask(request)) as Pass
  }

  async pass(name: PeerName, request: string): Promise<Sample> {
    const start = performance.now()
    const { ms } = await this.run(name, request)
    return { value: ms, rivalCpuMs: performance.now() - start }
  }

  [Symbol.dispose](): void {
    for (const peer of Object.values(this.#peers)) if (!('skipped' in peer)) peer[Symbol.dispose]()
  }
}

function sampleOf({ ms }: OurPass): Sample {
  return { value: ms }
}

function time(work: () => void): Sample {
  const start = performance.now()
  work()
  return { value: performance.now() - start }
}

/** Megabytes of the module behind gzip; `undefined` where it is not built. */
function moduleSize(): number | undefined {
  try {
    return gzipSync(readFileSync(new URL('wasm/fulmar_wasm_bg.wasm', ROOT)), { level: 9 }).length / 1e6
  } catch {
    return undefined
  }
}

function verdict(value: number, goal: number, unit: string): string {
  return value <= goal
    ? `goal ${goal} ${unit}, met`
    : `goal ${goal} ${unit}, short by ${(value - goal).toFixed(2)}`
}
