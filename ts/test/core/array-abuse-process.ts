/**
 * `node --expose-gc --import ./ts/test/core/typescript.mjs ts/test/core/array-abuse-process.ts [PREFIX]`: gives everything that is
 * exported and takes numbers in an array arrays that no caller should give, and says what became of it. A process of its own, as it may
 * crash: before each call it writes down which one it is.
 */

import { mkdtempSync, readFileSync, rmSync, writeSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { isDeepStrictEqual } from 'node:util'
import { createContext, runInContext } from 'node:vm'
import * as root from '../../src/index.js'
import { UnpaddedTokenBatch } from '../../src/model/index.js'
import { AdaptiveKLController, ConstantKLController, MCAdvantage } from '../../src/objective/index.js'
import { TokenDistribution } from '../../src/policy/index.js'
import { PriorityTree } from '../../src/replay/index.js'
import * as table from '../../src/table/index.js'
import { TableModel } from '../../src/tree/index.js'
import { ggufOfTokens } from '../tokenizer/files.js'
import { MODULES } from './entries.js'
import { type ExportedCall, exportedCalls } from './exported-calls.js'
import { closeWorld, instanceOf, madeValue } from './made-arguments.js'

type Numbers = Uint8Array | Uint32Array | Float32Array | Float64Array
type NumbersType = new (
  data: number | ArrayBufferLike | ArrayLike<number>,
  at?: number,
  length?: number,
) => Numbers
const TYPES = globalThis as unknown as Readonly<Record<string, NumbersType>>
const TYPE_NAMES = [
  ...(['Uint8Array', 'Uint8ClampedArray', 'Int8Array', 'Uint16Array', 'Int16Array', 'Uint32Array'] as const),
  ...(['Int32Array', 'Float32Array', 'Float64Array', 'BigInt64Array', 'BigUint64Array'] as const),
]

const golden = (path: string) =>
  new Uint8Array(readFileSync(new URL(`../../../tests/golden/${path}`, import.meta.url)))
const corpus = (path: string) =>
  new Uint8Array(readFileSync(new URL(`../../../fuzz/corpus/${path}`, import.meta.url)))

/** Two sequences of two tokens each, by the names that arguments have everywhere. */
const BY_NAME: Readonly<Record<string, () => ArrayLike<number>>> = {
  ids: () => Uint32Array.of(1, 2, 3, 4),
  offsets: () => Uint32Array.of(0, 2, 4),
  mask: () => Uint8Array.of(0, 1, 0, 1),
  attentionMask: () => Uint8Array.of(1, 1, 1, 1),
  positions: () => Uint32Array.of(0, 1, 0, 1),
  reward: () => Float32Array.of(1, 0),
  desirable: () => Uint8Array.of(1, 0),
  lengths: () => Uint32Array.of(2, 2),
}
const BY_TYPE: Readonly<Record<string, () => ArrayLike<number>>> = {
  Uint8Array: () => Uint8Array.of(1, 0, 1, 1),
  Uint32Array: () => Uint32Array.of(1, 2, 3, 4),
  Float32Array: () => Float32Array.of(-0.5, -1, -1.5, -2),
  Float64Array: () => Float64Array.of(1, 2, 3, 4),
  ArrayLike: () => Float64Array.of(1, 2, 3, 0),
}

const decoder = () => madeValue('Decoder', 'decoder') as root.Decoder
const LORA = { r: 1, target_modules: ['q_proj'] }
const adapter = await adapterBytes()
const safetensors = await decoder().toSafetensors()

const folder = mkdtempSync(join(tmpdir(), 'fulmar-abuse-'))
const dict = () => root.TensorDict.from({ x: root.Tensor.from([1, 2]) }, { batchSize: [2] })
const parquet = await table.toParquet(dict())

function ledgerBytes(): Uint8Array {
  using ledger = new root.Ledger()
  const logProbs = Float32Array.of(-0.5)
  const ids = { promptIds: Uint32Array.of(1, 2), completionIds: Uint32Array.of(4) }
  ledger.recordTurn({ ...ids, logProbs, sampledLogProbs: logProbs, policyVersion: 0 })
  return ledger.toBytes()
}

const PATTERN = String.raw`'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s`

/** A file of single bytes for tiktoken. */
function ranks(): Uint8Array {
  const lines = Array.from({ length: 256 }, (_, id) => `${Buffer.of(id).toString('base64')} ${id}\n`)
  return new TextEncoder().encode(lines.join(''))
}

async function adapterBytes(): Promise<Uint8Array> {
  using made = root.Decoder.fromSeed(decoder().config, { seed: 1 })
  await made.addLora(LORA, { seed: 1 })
  return await made.loraToSafetensors()
}

/** An archive without members: the record at its end. */
const EMPTY_ZIP = Uint8Array.of(80, 75, 5, 6, ...new Uint8Array(18))
const maze = golden(
  'dataset/raw/web/rail.eecs.berkeley.edu/datasets/offline_rl/maze2d/maze2d-umaze-sparse-v1.hdf5',
)
const episodes = {
  bytes: golden('dataset/raw/minari/pendulum/random-v0/data/main_data.hdf5'),
  metadata: new TextDecoder().decode(golden('dataset/raw/minari/pendulum/random-v0/data/metadata.json')),
}

/** Two states with two actions each. */
function tableModel(): TableModel {
  const pairs = (dtype: 'f32' | 'u32') => root.Tensor.zeros(dtype, [2, 2])
  return new TableModel({
    ...{ next: pairs('u32'), reward: pairs('f32'), discount: pairs('f32'), logits: pairs('f32') },
    value: root.Tensor.zeros('f32', [2]),
  })
}

/** A search over it. */
function searchOptions(): Readonly<Record<string, unknown>> {
  const model = tableModel()
  return { '.root': model.root([0]), '.model': model, '.numSimulations': 2, '.policy': 'gumbel' }
}

/** Two tokens over a width of two and a vocabulary of three. */
const HEAD = {
  '.hidden': Float32Array.of(1, 2, 3, 4),
  '.weight': Float32Array.of(1, 0, 0, 1, 1, 1),
  '.bias': Float32Array.of(0, 1, 0),
  '.width': 2,
  '.ids': Uint32Array.of(1, 2),
}

/** Arguments of calls for which names and types do not say enough; `.x` is the key `x` of options. */
const GIVEN: Readonly<Record<string, () => Readonly<Record<string, unknown>>>> = {
  toRagged: () => ({ padded: root.Tensor.zeros('f32', [2, 2]), '.side': 'right' }),
  'Ledger.fromBytes': () => ({ bytes: ledgerBytes() }),
  extendPrompt: () => ({ extension: { numKept: 1, rendered: madeValue('Rendered', 'rendered') } }),
  'Decoder.fromSafetensors': () => ({ config: decoder().config, bytes: safetensors }),
  'Decoder.fromGguf': () => ({ bytes: golden('model/gguf_llama/tiny.gguf') }),
  'Decoder#loadLora': () => ({ config: LORA, bytes: adapter }),
  'MCAdvantage#push': () => ({ item: 1 }),
  'ConstantKLController#update': () => ({ _kl: Float64Array.of(1) }),
  'new AdamW': () => ({ state: undefined }),
  'new Muon': () => ({ state: undefined }),
  'new SGD': () => ({ state: undefined }),
  balance: () => ({ numWorkers: 2 }),
  cuSeqlens: () => ({ groups: { items: Uint32Array.of(0, 1), offsets: Uint32Array.of(0, 2) }, index: 0 }),
  pack: () => ({ '.capacity': 8 }),
  'new UnpaddedTokenBatch': () => ({ '.width': 2 }),
  groupAdvantage: () => ({
    '.rewards': Float64Array.of(1, 0, 1, 0),
    '.weights': undefined,
    '.groupOffsets': Uint32Array.of(0, 2, 4),
  }),
  drawProbabilities: () => ({
    '.promptIds': Uint32Array.of(1),
    '.outputIds': Uint32Array.of(2),
    '.allowed': Uint32Array.of(7),
  }),
  drawToken: () => ({
    '.promptIds': Uint32Array.of(1),
    '.outputIds': Uint32Array.of(2),
    '.allowed': Uint32Array.of(7),
    '.drawIndex': 0,
  }),
  tokenMask: () => ({ vocabSize: 8 }),
  headLogProbs: () => HEAD,
  headBackward: () => ({
    ...HEAD,
    '.gradLogProb': Float32Array.of(1, 1),
    '.gradEntropy': Float32Array.of(1, 1),
  }),
  tokenLogProbs: () => ({ '.ids': Uint32Array.of(1, 0) }),
  tokenLogProbsBackward: () => ({
    '.ids': Uint32Array.of(1, 0),
    '.gradLogProb': Float32Array.of(1, 1),
    '.gradEntropy': Float32Array.of(1, 1),
  }),
  'GRPOLoss#forward': () => ({ '.advantage': Float32Array.of(1, -1) }),
  'MCAdvantageSelector#select': () => ({ '.groupSize': 2 }),
  'PriorityTree#lowerBound': () => ({ sums: Float64Array.of(1, 2) }),
  'new TokenDistribution': () => ({ '.logProbs': new Float32Array(8).fill(Math.log(0.25)) }),
  'TokenDistribution#logProb': () => ({ ids: Uint32Array.of(1, 2, 3, 1) }),
  readHdf5: () => ({ bytes: corpus('hdf5/plain') }),
  readD4RL: () => ({ bytes: maze }),
  readNpz: () => ({ bytes: EMPTY_ZIP }),
  readMinari: () => ({ bytes: episodes.bytes, metadata: episodes.metadata }),
  search: () => ({ ...searchOptions(), '.invalidActions': [0, 0], '.rootGumbel': [0, 0] }),
  'TableModel#root': () => ({ states: [0, 1] }),
  readSafetensors: () => ({ bytes: safetensors }),
  readArchive: () => ({ bytes: corpus('archive/plain') }),
  readConsolidated: () => ({ bytes: corpus('consolidated/literal') }),
  writeFileAtomic: () => ({ path: join(folder, 'file') }),
  'Ragged.from': () => ({ values: root.Tensor.from([1, 2, 3, 4]) }),
  'HfTokenizer.fromGguf': () => ({ bytes: new Uint8Array(ggufOfTokens('gpt2')) }),
  offsetsIn: () => ({ text: 'a text', unit: 'utf16' }),
  'TiktokenTokenizer.fromTiktoken': () => ({ '.ranks': ranks(), '.pattern': PATTERN }),
  fromArrow: () => ({ bytes: table.toArrow(dict()) }),
  fromParquet: () => ({ bytes: parquet }),
}

const batch = () => ({
  ...{ ids: Uint32Array.of(1, 2, 3, 4), offsets: Uint32Array.of(0, 2, 4), mask: Uint8Array.of(0, 1, 0, 1) },
})
const withHead = () => decoder().withScalarHead('score', { seed: 1 })

/** Objects of calls, or of all calls of a class, that are not made elsewhere. */
const OWNERS: Readonly<Record<string, () => object | Promise<object>>> = {
  UnpaddedTokenBatch: () => {
    const [ids, attentionMask, mask] = [
      Uint32Array.of(1, 2, 3, 4),
      Uint8Array.of(1, 1, 1, 1),
      Uint8Array.of(0, 1, 0, 1),
    ]
    return new UnpaddedTokenBatch({ ids, attentionMask, mask, width: 2 })
  },
  TableModel: tableModel,
  PriorityTree: () => {
    const tree = new PriorityTree(8)
    tree.update([0, 1, 2, 3], [1, 2, 3, 4])
    return tree
  },
  AdaptiveKLController: () => new AdaptiveKLController({ initKlCoef: 0.1, target: 1, horizon: 10 }),
  ConstantKLController: () => new ConstantKLController({ klCoef: 0.1 }),
  MCAdvantage: () => new MCAdvantage({ grpoSize: 4 }),
  'Decoder#loadLora': () => root.Decoder.fromSeed(decoder().config, { seed: 1 }),
  'Decoder#values': withHead,
  'Decoder#forwardValues': withHead,
  'Decoder#backward': async () => {
    const made = root.Decoder.fromSeed(decoder().config, { seed: 1 })
    await made.forward(batch())
    return made
  },
  'Decoder#backwardValues': async () => {
    const made = await withHead()
    await made.forwardValues(batch())
    return made
  },
  TokenDistribution: () =>
    new TokenDistribution({
      ...{
        ids: Uint32Array.of(1, 2, 3, 1),
        offsets: Uint32Array.of(0, 2, 4),
        mask: Uint8Array.of(0, 1, 0, 1),
      },
      logProbs: new Float32Array(8).fill(Math.log(0.25)),
    }),
}

/** Calls that do not take even whole arrays here, and why. */
const UNREACHED: Readonly<Record<string, string>> = {
  'OnnxPolicy.launch': 'the package of ONNX Runtime is optional',
  'OnnxPolicy#pushModel': 'the same',
  'OnnxPolicy#stage': 'the same',
  'OnnxPolicy#generate': 'the same',
  'OnnxPolicy#score': 'the same',
  'OnnxWrapper.launch': 'the same',
  'Sandbox#run': 'bubblewrap is not on every machine',
  'Sandbox#write': 'the same',
}

/** A way to spoil an array. `seen` is what a call may then read; refusing it is always right. */
interface Abuse {
  readonly name: string
  readonly make: (whole: Numbers) => { readonly argument: unknown; readonly after?: () => void }
  readonly seen: 'whole' | 'empty' | 'first' | 'anything'
}

const typeOf = (numbers: Numbers) =>
  numbers.constructor as unknown as NumbersType & { BYTES_PER_ELEMENT: number }
const transfer = (buffer: ArrayBufferLike) =>
  void structuredClone(buffer, { transfer: [buffer as ArrayBuffer] })

/** The same numbers at the start of a buffer that can be resized, to its end. */
function resizable(whole: Numbers): {
  readonly buffer: ArrayBuffer & { resize(length: number): void }
  readonly view: Numbers
} {
  const Buffer = ArrayBuffer as unknown as new (
    length: number,
    options: object,
  ) => ArrayBuffer & { resize(length: number): void }
  const buffer = new Buffer(whole.byteLength, { maxByteLength: 2 * whole.byteLength + (1 << 16) })
  const view = new (typeOf(whole))(buffer)
  view.set(whole as never)
  return { buffer, view }
}

function shared(whole: Numbers, options?: object): Numbers {
  const Buffer = SharedArrayBuffer as unknown as new (length: number, options?: object) => SharedArrayBuffer
  const view = new (typeOf(whole))(new Buffer(whole.byteLength, options))
  view.set(whole as never)
  return view
}

const collect = () => (globalThis as { gc?: () => void }).gc?.()
const realm = createContext()
const copied = (whole: Numbers) => new (typeOf(whole))(whole)

const ABUSES: readonly Abuse[] = [
  {
    name: 'detached',
    seen: 'empty',
    make: (whole) => {
      const argument = copied(whole)
      transfer(argument.buffer)
      return { argument }
    },
  },
  {
    name: 'shrunk to nothing',
    seen: 'empty',
    make: (whole) => {
      const { buffer, view } = resizable(whole)
      buffer.resize(0)
      return { argument: view }
    },
  },
  {
    name: 'shrunk to one',
    seen: 'first',
    make: (whole) => {
      const { buffer, view } = resizable(whole)
      buffer.resize(typeOf(whole).BYTES_PER_ELEMENT)
      return { argument: view }
    },
  },
  {
    name: 'out of bounds',
    seen: 'empty',
    make: (whole) => {
      const { buffer } = resizable(whole)
      const argument = new (typeOf(whole))(buffer, 0, whole.length)
      buffer.resize(Math.max(0, whole.byteLength - 1))
      return { argument }
    },
  },
  { name: 'resizable', seen: 'whole', make: (whole) => ({ argument: resizable(whole).view }) },
  { name: 'shared', seen: 'whole', make: (whole) => ({ argument: shared(whole) }) },
  {
    name: 'shared and growable',
    seen: 'whole',
    make: (whole) => ({ argument: shared(whole, { maxByteLength: 2 * whole.byteLength + 8 }) }),
  },
  {
    name: 'a window of a larger buffer',
    seen: 'whole',
    make: (whole) => {
      const larger = new (typeOf(whole))(whole.length + 5)
      larger.fill(77 as never)
      larger.set(whole as never, 3)
      return { argument: larger.subarray(3, 3 + whole.length) }
    },
  },
  {
    name: 'of another realm',
    seen: 'whole',
    make: (whole) => {
      const Other = runInContext(whole.constructor.name, realm) as NumbersType
      return { argument: new Other(whole) }
    },
  },
  {
    name: 'with a length that lies',
    seen: 'anything',
    make: (whole) => ({ argument: Object.defineProperty(copied(whole), 'length', { value: 1 << 20 }) }),
  },
  { name: 'behind a proxy', seen: 'anything', make: (whole) => ({ argument: new Proxy(copied(whole), {}) }) },
  {
    name: 'a prototype alone',
    seen: 'anything',
    make: (whole) => ({ argument: Object.create(whole.constructor.prototype) }),
  },
  {
    name: 'a DataView',
    seen: 'anything',
    make: (whole) => ({ argument: new DataView(copied(whole).buffer) }),
  },
  { name: 'a buffer', seen: 'anything', make: (whole) => ({ argument: copied(whole).buffer }) },
  { name: 'a shared buffer', seen: 'anything', make: (whole) => ({ argument: shared(whole).buffer }) },
  {
    name: 'transferred during the call',
    seen: 'whole',
    make: (whole) => {
      const argument = copied(whole)
      return { argument, after: () => transfer(argument.buffer) }
    },
  },
  {
    name: 'shrunk during the call',
    seen: 'whole',
    make: (whole) => {
      const { buffer, view } = resizable(whole)
      return { argument: view, after: () => buffer.resize(0) }
    },
  },
  {
    name: 'written over during the call',
    seen: 'whole',
    make: (whole) => {
      const argument = copied(whole)
      return { argument, after: () => void new Uint8Array(argument.buffer).fill(255) }
    },
  },
  {
    name: 'collected during the call',
    seen: 'whole',
    make: (whole) => ({ argument: copied(whole), after: collect }),
  },
]

/** Arrays of each other type, of the same numbers. */
function wrongTypes(taken: string): Abuse[] {
  const others = TYPE_NAMES.filter((name) => name !== taken)
  return others.map((name) => ({
    name: `as a ${name}`,
    seen: 'anything' as const,
    make: (whole) => {
      const list = Array.from(whole, (one) => (name.startsWith('Big') ? BigInt(Math.trunc(one)) : one))
      return { argument: (TYPES[name] as unknown as { from(list: unknown[]): unknown }).from(list) }
    },
  }))
}

/** An argument or option of a call that takes an array. */
interface Place {
  readonly at: number
  readonly key: string | undefined
  readonly name: string
  readonly type: string
}

function placesOf({ parameters }: ExportedCall): Place[] {
  return parameters.flatMap(({ name, array, arrays }, at) => [
    ...(array ? [{ at, key: undefined, name, type: array }] : []),
    ...Object.entries(arrays).map(([key, type]) => ({ at, key, name: key, type })),
  ])
}

/** All arguments of a call, whole. */
function argumentsOf(call: ExportedCall): unknown[] {
  const given = GIVEN[call.id]?.() ?? {}
  return call.parameters.map(({ name, type, isOptions, required, array, arrays, isOptional }) => {
    if (name in given) return given[name]
    if (array) return arrayOf(name, array)
    if (!isOptions) return isOptional ? undefined : madeValue(type, name)
    const options: Record<string, unknown> = {}
    for (const [key, wanted] of required) options[key] = madeValue(wanted, key)
    for (const [key, wanted] of Object.entries(arrays)) options[key] = arrayOf(key, wanted)
    for (const [key, value] of Object.entries(given))
      if (key.startsWith('.')) {
        if (value === undefined) delete options[key.slice(1)]
        else options[key.slice(1)] = value
      }
    return options
  })
}

function arrayOf(name: string, type: string): ArrayLike<number> {
  const named = BY_NAME[name]?.()
  return named && (type === 'ArrayLike' || named.constructor.name === type)
    ? named
    : (BY_TYPE[type]?.() ?? [])
}

/** The call as a function of its arguments, on an object of its own where it has one. */
async function bodyOf({
  id,
  entry,
  kind,
  owner,
  member,
}: ExportedCall): Promise<(args: unknown[]) => unknown> {
  const exported = Reflect.get(MODULES[entry] ?? {}, owner) as { new (): object; prototype: object }
  if (kind === 'function') return (args) => Reflect.apply(exported as never, undefined, args)
  if (kind === 'constructor') return (args) => Reflect.construct(exported as never, args)
  const made = async () =>
    (await (OWNERS[id] ?? OWNERS[owner])?.()) ?? (await instanceOf(owner)) ?? new exported()
  const target = kind === 'static' ? exported : await made()
  return (args) => Reflect.apply(Reflect.get(target as object, member) as never, target, args)
}

/** Result of a call: the code of a FulmarError, the text of another error, or the value. */
interface End {
  readonly code?: string
  readonly foreign?: string
  readonly value?: unknown
}

async function endOf(body: () => unknown, after?: () => void): Promise<End> {
  try {
    let given = body()
    if (given !== null && typeof given === 'object' && Symbol.asyncIterator in given) {
      const first = (given as AsyncIterable<unknown>)[Symbol.asyncIterator]().next()
      given = first
    }
    const isLater = given !== null && typeof given === 'object' && 'then' in given
    if (isLater) after?.()
    return { value: plain(await given) }
  } catch (error) {
    if (error instanceof root.FulmarError) return { code: error.code }
    return { foreign: String(error) }
  }
}

/** Returns the comparable part of a value. */
function plain(value: unknown): unknown {
  if (ArrayBuffer.isView(value)) return Array.from(value as Uint8Array)
  if (Array.isArray(value)) return value.map(plain)
  if (value instanceof root.Tensor) return [value.dtype, value.shape, plain(value.data)]
  if (value === null || typeof value !== 'object') return value
  if (value.constructor !== Object) return value.constructor?.name
  return Object.fromEntries(Object.entries(value).map(([key, one]) => [key, plain(one)]))
}

const problems: string[] = []
const counts = { calls: 0, places: 0, abuses: 0, refused: 0, answered: 0, unreached: 0 }

async function abuse(call: ExportedCall, place: Place, { name, make, seen }: Abuse): Promise<void> {
  const id = `${call.id}(${place.name}): ${name}`
  writeSync(2, `${id}\n`)
  const body = await bodyOf(call)
  const args = argumentsOf(call)
  const holder = (place.key === undefined ? args : args[place.at]) as Record<string | number, unknown>
  const slot = place.key ?? place.at
  const whole = holder[slot] as Numbers
  if (!ArrayBuffer.isView(whole)) return
  const numbers = { whole, empty: new (typeOf(whole))(0), first: whole.slice(0, 1) as Numbers }
  const { argument, after } = make(whole)
  holder[slot] = argument
  counts.abuses += 1
  const end = await endOf(() => body(args), after)
  if (end.code === undefined) counts.answered += 1
  else counts.refused += 1
  if (end.foreign !== undefined) problems.push(`${id}: ${end.foreign}`)
  if (end.code === 'PANIC') problems.push(`${id}: a panic`)
  if (seen === 'anything' || !('value' in end)) return
  const again = await bodyOf(call)
  const clean = argumentsOf(call)
  const other = (place.key === undefined ? clean : clean[place.at]) as Record<string | number, unknown>
  other[slot] = numbers[seen]
  const expected = await endOf(() => again(clean))
  if (!isDeepStrictEqual(end, expected))
    problems.push(
      `${id}: got ${JSON.stringify(end).slice(0, 200)}, not ${JSON.stringify(expected).slice(0, 200)}`,
    )
}

/** Takes away the memory of one key of the options while another is read. */
async function abuseByGetter(call: ExportedCall, place: Place, other: string): Promise<void> {
  const id = `${call.id}(${place.name}): transferred while ${other} is read`
  writeSync(2, `${id}\n`)
  const body = await bodyOf(call)
  const args = argumentsOf(call)
  const options = args[place.at] as Record<string, unknown>
  const whole = options[place.key ?? '']
  if (!ArrayBuffer.isView(whole)) return
  const taken = copied(whole as Numbers)
  options[place.key ?? ''] = taken
  const value = options[other]
  const get = () => {
    if (taken.byteLength > 0) transfer(taken.buffer)
    return value
  }
  Object.defineProperty(options, other, { get, enumerable: true })
  counts.abuses += 1
  const end = await endOf(() => body(args))
  if (end.code === undefined) counts.answered += 1
  else counts.refused += 1
  if (end.foreign !== undefined) problems.push(`${id}: ${end.foreign}`)
}

const prefix = process.argv[2] ?? ''
for (const call of exportedCalls()) {
  const places = placesOf(call)
  if (places.length === 0 || !call.id.startsWith(prefix)) continue
  writeSync(2, `${call.id}\n`)
  counts.calls += 1
  const whole = await endOf(async () => (await bodyOf(call))(argumentsOf(call)))
  const isReached = 'value' in whole
  if (!isReached) counts.unreached += 1
  if (isReached === call.id in UNREACHED)
    problems.push(`${call.id}: ${isReached ? 'is reached' : `whole arrays give ${JSON.stringify(whole)}`}`)
  for (const place of isReached ? places : []) {
    counts.places += 1
    for (const one of [...ABUSES, ...wrongTypes(place.type)]) await abuse(call, place, one)
    if (place.key === undefined) continue
    const others = places.filter(({ at, key }) => at === place.at && key !== place.key)
    for (const { key } of others) if (key !== undefined) await abuseByGetter(call, place, key)
  }
}
await closeWorld()
// What was collected late may still let go of its files.
rmSync(folder, { recursive: true, force: true, maxRetries: 10 })
process.stdout.write(JSON.stringify({ problems, counts }))
