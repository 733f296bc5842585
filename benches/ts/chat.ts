/**
 * Chats to text, ids and masks: 1,000 conversations of 4 to 40 messages, a third with tools, 7.5 MB, seeded. Compared with
 * minijinja and the crate tokenizers in Rust, npm's packages on Node, transformers in Python; goals 1, 2, 3 and 17.
 */

import { copyFileSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { gzipSync } from 'node:zlib'
import { Conversation, type Message } from 'fulmar/chat'
import { chatCorpus } from './chat-corpus.js'
import { type OurPass, OursInNode } from './chat-ours.js'
import {
  type Contestants,
  type NodeRivals,
  nodeRivals,
  Peers,
  peerOf,
  REQUESTS,
  rustOurs,
  rustRival,
  transformersRival,
  wasmOurs,
} from './chat-rivals.js'
import {
  alternate,
  type Figure,
  type Goal,
  hand,
  type Report,
  ROOT,
  readOptions,
  type Sample,
  say,
  verdict,
} from './measure.js'
import type { Skipped } from './peer.js'

const SEED = 1
const WARMUP = 2
/** Turns of the rollout that grows by bridges. */
const NUM_TURNS = 40
const MODULE_GZ_MB_GOAL = 1
const FIRST_CALL_MS_GOAL = 15

const NO_RIVAL: Skipped = { skipped: '--no-rival' }

/** The compared cases; names with a space are requests to a peer. */
const FIGURES: readonly {
  readonly work: string
  readonly own: string
  readonly rival: string
  readonly name: string
  readonly goal?: Goal
}[] = [
  {
    work: 'text, Rust, table of Qwen3',
    own: 'rust render',
    rival: 'minijinja render',
    name: 'minijinja',
    goal: { atLeast: 3 },
  },
  {
    work: 'text, Rust, table of Qwen3',
    own: 'rust render',
    rival: 'python render',
    name: 'transformers',
    goal: { atLeast: 20 },
  },
  { work: 'text, Rust, Jinja template', own: 'rust template', rival: 'minijinja render', name: 'minijinja' },
  {
    work: 'objects to text, Node, table',
    own: 'nodeText',
    rival: 'hfJinja',
    name: '@huggingface/jinja',
    goal: { atLeast: 15 },
  },
  {
    work: 'objects to text, Node, template',
    own: 'nodeTemplate',
    rival: 'hfJinja',
    name: '@huggingface/jinja',
  },
  {
    work: 'objects to text, WebAssembly, table',
    own: 'wasm render',
    rival: 'hfJinja',
    name: '@huggingface/jinja',
    goal: { atLeast: 4 },
  },
  {
    work: 'objects to ids and mask, Node, table',
    own: 'nodeTokens',
    rival: 'python tokens',
    name: 'transformers',
    goal: { atLeast: 10 },
  },
  {
    work: 'objects to ids and mask, Node, template',
    own: 'nodeTemplateTokens',
    rival: 'python tokens',
    name: 'transformers',
    goal: { atLeast: 10 },
  },
  {
    work: 'objects to ids and mask, WebAssembly, table',
    own: 'wasm tokens',
    rival: 'python tokens',
    name: 'transformers',
  },
  { work: 'text to ids, Rust', own: 'rust encode', rival: 'minijinja encode', name: 'tokenizers, the crate' },
  { work: 'text to ids, Node', own: 'nodeEncode', rival: 'npmTokenizers', name: 'tokenizers, npm' },
  {
    work: 'text to ids, Node, a twentieth',
    own: 'nodeEncodeSlice',
    rival: 'hfTokenizers',
    name: '@huggingface/tokenizers',
  },
  {
    work: `${NUM_TURNS} turns by bridges, Rust`,
    own: 'rust rollout',
    rival: 'rust whole',
    name: 'one pass over the whole',
    goal: { atMost: 1.2 },
  },
  {
    work: `${NUM_TURNS} turns by bridges, Node`,
    own: 'bridges',
    rival: 'onePass',
    name: 'one pass over the whole',
    goal: { atMost: 1.2 },
  },
  {
    work: `${NUM_TURNS} turns by bridges, Node`,
    own: 'bridges',
    rival: 'everyTurn',
    name: 'all rendered anew at each turn',
  },
]

const options = readOptions({ rounds: 9 })
const folder = mkdtempSync(join(tmpdir(), 'fulmar-bench-'))
const plainFolder = mkdtempSync(join(tmpdir(), 'fulmar-bench-'))
try {
  hand(await measure())
} finally {
  for (const made of [folder, plainFolder]) rmSync(made, { recursive: true, force: true })
}

async function measure(): Promise<Report> {
  const source = writeInputs()
  const ours = new OursInNode(folder)
  const node = options.rival ? nodeRivals(source.plain, source.tokenizer) : NO_RIVAL
  using peers = new Peers({
    rust: rustOurs(folder),
    minijinja: options.rival ? rustRival(plainFolder) : NO_RIVAL,
    python: options.rival ? transformersRival(folder) : NO_RIVAL,
    wasm: wasmOurs(folder),
  })
  const greetings = await peers.greetings()
  const texts = ours.corpus.map(({ messages, tools = [] }) => ours.renderer.renderText(messages, { tools }))
  say('comparing outputs')
  const checks = await compare(ours, peers, node, texts)
  const contestants = {
    ...ourContestants(ours, texts),
    ...nodeContestants(ours, node, texts),
    ...peers.contestants(),
  }
  const rounds = await alternate(contestants, { ...options, warmup: WARMUP })
  const skipped = (rival: string) => ('skipped' in node && !rival.includes(' ') ? node : peers.skipped(rival))
  const figures = FIGURES.flatMap(({ work, own, rival, name, goal }): Figure[] => {
    if (!(own in contestants)) return []
    const { cold, warm } = rounds.of(own)
    const theirs = rival in contestants ? rounds.of(rival) : undefined
    const figure = {
      work,
      unit: 'ms' as const,
      ours: warm,
      rival: theirs ? { name, samples: theirs.warm } : skipped(rival),
    }
    return [{ ...figure, ...(goal && { goal }), cold: { ours: cold, ...(theirs && { rival: theirs.cold }) } }]
  })
  const versions = {
    ...('skipped' in node ? {} : node.versions),
    ...greetings.minijinja?.versions,
    ...greetings.python?.versions,
  }
  const notes = [...notesOf(ours.corpus.length, texts, greetings.wasm?.firstMs), rounds.disturbance]
  return { setting: { seed: SEED, threads: 1, turns: NUM_TURNS }, checks, figures, notes, versions }
}

function notesOf(numConversations: number, texts: readonly string[], firstMs: number | undefined): string[] {
  const millions = (texts.join('').length / 1e6).toFixed(1)
  const notes = [
    `${numConversations} conversations, ${millions} million characters of text; times are of a whole pass on one thread`,
    'transformers is timed in processor time, all others by the clock',
    'the template is our built-in qwen3; for minijinja and @huggingface/jinja without its generation tags, which they do not know',
  ]
  const size = moduleSize()
  if (size !== undefined) {
    notes.push(
      `the whole WebAssembly module has ${size.toFixed(2)} MB behind gzip -9: ${verdict(size, MODULE_GZ_MB_GOAL, 'MB')}`,
    )
  }
  if (firstMs !== undefined) {
    notes.push(
      `its first rendering takes ${firstMs.toFixed(1)} ms after the import: ${verdict(firstMs, FIRST_CALL_MS_GOAL, 'ms')}`,
    )
  }
  return notes
}

function ourContestants(ours: OursInNode, texts: readonly string[]): Contestants {
  return {
    nodeText: () => sampleOf(ours.renderTexts()),
    nodeTemplate: () => sampleOf(ours.renderTemplate()),
    nodeTokens: () => sampleOf(ours.tokens()),
    nodeTemplateTokens: () => sampleOf(ours.templateTokens()),
    nodeEncode: () => time(() => each(texts, (text) => ours.encode(text))),
    nodeEncodeSlice: () => time(() => each(sliceOf(texts), (text) => ours.encode(text))),
    ...rolloutContestants(ours),
  }
}

function nodeContestants(
  ours: OursInNode,
  node: NodeRivals | Skipped,
  texts: readonly string[],
): Contestants {
  if ('skipped' in node) return {}
  return {
    hfJinja: () => time(() => each(ours.corpus, node.render)),
    npmTokenizers: async () => {
      const start = performance.now()
      for (const text of texts) await node.encodeAsync(text)
      return { value: performance.now() - start }
    },
    // The whole corpus would take minutes, so this measures a twentieth of it; the figure names that share.
    hfTokenizers: () => time(() => each(sliceOf(texts), node.encode)),
  }
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

/** Throws if two sides disagree about a single byte. */
async function compare(ours: OursInNode, peers: Peers, node: NodeRivals | Skipped, texts: readonly string[]) {
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
    const peer = peerOf(name)
    const expected = { render: text, template: text, tokens }[request as string]
    if (expected === undefined || !peers.has(peer)) continue
    const { digest } = await peers.run(peer, request)
    same(`${request} of ours and of ${peer}`, expected, digest)
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
    const ids = ours.encode(some).join()
    if (ids !== (await node.encodeAsync(some)).join()) throw new Error('tokenizers encodes differently')
    if (ids !== node.encode(some).join()) throw new Error('@huggingface/tokenizers encodes differently')
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
      using conversation = new Conversation(renderer)
      conversation.start([ask(0, turns[0]?.[0] ?? '')])
      for (const [turn, answer] of answers.entries()) {
        const next = turns[turn + 1]
        if (!next) {
          conversation.parse(answer)
          break
        }
        const { bridge } = conversation.turn(answer, [ask(turn + 1, next[0])])
        if (!bridge.ok) throw new Error(`turn ${turn} must be bridged: got ${bridge.reason}`)
      }
    }),
    everyTurn: repeat(() => {
      for (let turn = 0; turn < NUM_TURNS; turn++)
        renderer.render(whole.slice(0, 2 * turn + 1), { addGenerationPrompt: true })
    }),
    onePass: repeat(() => {
      renderer.render(whole)
    }),
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
