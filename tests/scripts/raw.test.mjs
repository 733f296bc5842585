/** `npm run raw`: the raw interface from the declarations of the addon, and what the two bindings must agree on. */

import assert from 'node:assert/strict'
import { test } from 'node:test'
import { declarationsOf } from '../../scripts/declarations.mjs'
import { faults, misfits, rawInterface } from '../../scripts/raw.mjs'

const ADDON = `
export declare const __napiBindingTarget: 'native'

/** r" A dense tensor. */
export declare class Tensor {
  /** Makes one. */
  constructor(dtype: string)
  /** r" Copies bytes. */
  static fromBytes(shape: Float64Array, bytes: Uint8Array): Tensor
  static fromFile(path: string): Promise<Tensor>
  /**
   * r" Returns a part.
   * r" Shares memory.
   */
  slice(dim: number, at: Float64Array | undefined | null, names: Array<string>, end?: number | undefined | null): Tensor | null
  sum(): Promise<number>
  save(path: string): Promise<void>
  watch(): void
  free(): void
}

/** One drawn token. */
export interface Draw {
  /** The token. */
  id: number
  logProbs?: Float32Array
}

/** Draws. */
export declare function draw(answer: (operation: string) => void, topK: number): Draw | string

export declare function openPort(): number
`
const WASM = `
export interface InitOutput { readonly memory: WebAssembly.Memory; }
export class Tensor {
    constructor(dtype: string);
    static fromBytes(shape: Float64Array | number[], bytes: Uint8Array | number[]): Tensor;
    free(): void;
    [Symbol.dispose](): void;
    slice(dim: number, at: Float64Array | null | undefined, names: string[], end?: number | null): Tensor | undefined;
    sum(): number;
}
export class Draw {
    private constructor();
    free(): void;
    id: number;
    get logProbs(): Float32Array | undefined;
    set logProbs(value: Float32Array | null | undefined);
}
export function draw(answer: (operation: string) => void, top_k: number): string | Draw;
`
const ALONE = {
  addon: { 'there are no files': ['Tensor.save', 'static Tensor.fromFile'], 'there is no net': ['openPort'] },
  wasm: { 'the module is started': ['InitOutput'] },
}

/** Replaces a text that must be there. */
function changed(text, from, to) {
  assert.ok(text.includes(from), from)
  return text.replace(from, to)
}

/** The sentences of `misfits` after a change of one of the texts. */
function said({ addon = ADDON, wasm = WASM, alone = ALONE }) {
  return misfits(declarationsOf(addon), declarationsOf(wasm), alone)
}

const inAddon = (from, to) => said({ addon: changed(ADDON, from, to) })
const inWasm = (from, to) => said({ wasm: changed(WASM, from, to) })

test('bindings of one interface fit, however each of them writes it', () => {
  assert.deepEqual(said({}), [])
  assert.deepEqual(faults(declarationsOf(ADDON)), [])
  assert.deepEqual(inWasm('constructor(dtype: string)', 'constructor(_dtype: string)'), [])
})

test('a member or a function that one binding lacks is named', () => {
  assert.deepEqual(inWasm('    sum(): number;\n', ''), [
    'Tensor.sum: the addon has it, WebAssembly does not (ALONE of scripts/raw.mjs lists those that may)',
  ])
  assert.deepEqual(inAddon('  sum(): Promise<number>\n', ''), [
    'Tensor.sum: WebAssembly has it, the addon does not (ALONE of scripts/raw.mjs lists those that may)',
  ])
  assert.match(inWasm('    constructor(dtype: string);\n', '    private constructor();\n')[0], /^new Tensor:/)
  assert.match(
    inWasm('    static fromBytes', '    fromBytes')[0],
    /^static Tensor\.fromBytes: the addon has it/,
  )
  assert.match(inWasm('    id: number;\n', '')[0], /^Draw\.id:/)
})

test('a class that one binding lacks is named once, without its members', () => {
  const found = inWasm(/export class Tensor.*?\n}\n/s.exec(WASM)[0], '')
  assert.deepEqual(
    found.map((line) => line.split(':')[0]),
    ['Tensor'],
  )
})

test('an argument or a result of another type is named, with both forms', () => {
  assert.deepEqual(inWasm('sum(): number', 'sum(): string'), [
    'Tensor.sum: the addon has method (): number, WebAssembly method (): string',
  ])
  for (const [from, to] of [
    ['names: string[]', 'names: string'],
    ['end?: number | null', 'end: number'],
    ['end?: number | null', 'end?: number, step?: number'],
    ['at: Float64Array | null | undefined', 'at: Float64Array'],
    ['Tensor | undefined', 'Tensor'],
    ['Tensor | undefined', 'any'],
  ])
    assert.match(
      inWasm(from, to)[0],
      /^Tensor\.slice: the addon has method \(dim: number, at\?: Float64Array/,
      to,
    )
  assert.match(inWasm('(operation: string) => void', 'Function')[0], /^draw:/)
  assert.match(
    inWasm('get logProbs(): Float32Array | undefined', 'get logProbs(): Float32Array')[0],
    /^Draw\./,
  )
})

test('arguments of one type in another order are found by their names', () => {
  assert.match(inWasm('shape: Float64Array | number[], bytes', 'bytes: Float64Array, shape')[0], /shape/)
})

test('a promise of the addon may be a value in WebAssembly, but not the other way round', () => {
  assert.deepEqual(inWasm('sum(): number', 'sum(): Promise<number>'), [])
  assert.deepEqual(said({ addon: changed(ADDON, 'sum(): Promise<number>', 'sum(): number') }), [])
  assert.deepEqual(
    said({
      addon: changed(ADDON, 'sum(): Promise<number>', 'sum(): number'),
      wasm: changed(WASM, 'sum(): number', 'sum(): Promise<number>'),
    }),
    ['Tensor.sum: only WebAssembly returns a promise; the addon must return one too'],
  )
})

test('a name that only one binding has needs a reason, and no reason may be left over', () => {
  const without = { ...ALONE, addon: { 'there are no files': ['Tensor.save', 'static Tensor.fromFile'] } }
  assert.match(said({ alone: without })[0], /^openPort: the addon has it, WebAssembly does not/)
  assert.deepEqual(said({ wasm: `${WASM}export function openPort(): number;\n` }), [
    'openPort: both bindings have it: take it out of ALONE of scripts/raw.mjs',
  ])
  assert.deepEqual(inAddon('export declare function openPort(): number\n', ''), [
    'openPort: ALONE of scripts/raw.mjs lists it, the addon does not have it',
  ])
  assert.match(said({ alone: { ...ALONE, wasm: {} } })[0], /^InitOutput: WebAssembly has it/)
})

test('a reason of a class includes its members', () => {
  const file = 'export declare class File {\n  path(): string\n  free(): void\n}\n'
  const files = { ...ALONE, addon: { ...ALONE.addon, 'there are no disks': ['File'] } }
  assert.deepEqual(said({ addon: ADDON + file, alone: files }), [])
  const text = rawInterface(declarationsOf(ADDON + file), files)
  assert.match(text, /\nexport interface RawFile extends RawOwner \{\n {2}path\(\): string\n\}\n/)
})

test('a type that the addon does not declare, and a class that cannot be freed, are refused', () => {
  const found = (from, to) => faults(declarationsOf(changed(ADDON, from, to)))
  assert.deepEqual(found('sum(): Promise<number>', 'sum(): Promise<JsText>'), [
    'Tensor.sum: the addon must declare JsText, or name another type with ts_return_type',
  ])
  for (const hidden of [
    'names: Array<JsText>',
    'names: (string | JsText)[]',
    'names: (text: JsText | null) => void',
  ])
    assert.match(found('names: Array<string>', hidden)[0], /^Tensor\.slice: .* JsText/, hidden)
  assert.deepEqual(found('  free(): void\n', ''), ['Tensor: every class must have the method free'])
})

test('the raw interface has each name once, with its doc, and says what is optional', () => {
  assert.equal(
    rawInterface(declarationsOf(ADDON), ALONE),
    `/** The raw interface: what the addon and the WebAssembly module offer. \`npm run raw\` writes this file from the bindings. */

import type { Later, RawOwner } from './raw-owner.js'

/** Functions and classes of both bindings; those of the addon alone are optional. */
export interface Raw extends Partial<RawAddon> {
  readonly Tensor: {
    /** Makes one. */
    new (dtype: string): RawTensor
    /** Copies bytes. */
    fromBytes(shape: Float64Array, bytes: Uint8Array): RawTensor
    /** Only the addon has it: there are no files. */
    fromFile?(path: string): Promise<RawTensor>
  }
  /** Draws. */
  draw(answer: (operation: string) => void, topK: number): RawDraw | string
}

/** Functions and classes that only the addon has. */
export interface RawAddon {
  /** Only the addon has it: there is no net. */
  openPort(): number
}

/** A dense tensor. */
export interface RawTensor extends RawOwner {
  /**
   * Returns a part.
   * Shares memory.
   */
  slice(
    dim: number,
    at: Float64Array | null | undefined,
    names: string[],
    end?: number | null | undefined,
  ): RawTensor | null | undefined
  sum(): Later<number>
  /** Only the addon has it: there are no files. */
  save?(path: string): Promise<void>
}

/** One drawn token. */
export interface RawDraw {
  /** The token. */
  readonly id: number
  readonly logProbs?: Float32Array | undefined
}
`,
  )
})
