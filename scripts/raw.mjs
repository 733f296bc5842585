/**
 * `npm run raw [-- --check | --wasm]`: writes `ts/src/native/raw.ts`, the raw interface, from the declarations that napi-rs makes of the addon.
 *
 * With `--check` it writes nothing and fails where the file differs. With `--wasm` it compares the declarations that wasm-bindgen makes of the
 * WebAssembly module with those of the addon, name by name.
 */

import { existsSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'
import { declarationsOf } from './declarations.mjs'
import { asProgram, Refusal, root } from './steps.mjs'

const ADDON = 'addon/index.d.cts'
const WASM = 'wasm/fulmar_wasm.d.ts'
const RAW = 'ts/src/native/raw.ts'
const WIDTH_MAX = 110

/** Names that only one binding has, by reason. The name of a class includes its members. */
export const ALONE = {
  addon: {
    'WebAssembly has no files': [
      'Decoder.saveFolder',
      'Decoder.saveAdapter',
      'Decoder.loadAdapter',
      'static Decoder.fromFolder',
      'DurableStorage',
      'LazyMemmapStorage',
      'convertColumns',
      'convertEpisodes',
      'convertGenDgrl',
      'convertOpenx',
      'convertSplit',
      'convertFrames',
      'convertTable',
      'convertTrials',
      'dumpReplayBuffer',
      'dumpReplayBufferEnsemble',
      'loadReplayBuffer',
      'loadReplayBufferEnsemble',
      'readOpenxEpisode',
      'RowsFolder',
      'SplitsFolder',
      'StreamedEpisode',
    ],
    'WebAssembly has no sockets': ['storeStorage'],
    'WebAssembly has one thread': ['attachReplayBuffer', 'copyAhead', 'copyBatch', 'shareReplayBuffer'],
  },
  wasm: {
    'the addon is loaded by one call': ['InitOutput', '__wbg_init', 'initSync'],
    "the addon's errors carry their own text": ['lastPanic', 'record_panics'],
  },
}

if (import.meta.url === pathToFileURL(process.argv[1] ?? '').href) {
  asProgram(() => {
    const [mode, ...more] = process.argv.slice(2)
    if (![undefined, '--check', '--wasm'].includes(mode) || more.length > 0)
      throw new Refusal('use npm run raw [-- --check | --wasm]')
    const addon = declarationsOf(read(ADDON))
    refuse(faults(addon))
    if (mode === '--wasm') return refuse(misfits(addon, declarationsOf(read(WASM))))
    if (mode === '--check') return differences(rawInterface(addon))
    return writeFileSync(join(root, RAW), rawInterface(addon))
  })
}

function refuse(found) {
  if (found.length > 0) throw new Refusal(found.join('\n'))
}

function read(file) {
  if (!existsSync(join(root, file))) throw new Refusal(`${file} must be there: npm run build`)
  return readFileSync(join(root, file), 'utf8')
}

/** Prints where `raw.ts` differs from `text`, and returns the exit status. */
function differences(text) {
  const before = existsSync(join(root, RAW)) ? read(RAW) : ''
  if (before === text) return 0
  const [old, now] = [before, text].map((file) => file.split('\n'))
  const lines = [
    ...old.filter((line) => !now.includes(line)).map((line) => `- ${line}`),
    ...now.filter((line) => !old.includes(line)).map((line) => `+ ${line}`),
  ]
  process.stdout.write(`${lines.join('\n')}\n${RAW} differs from ${ADDON}: npm run raw\n`)
  return 1
}

/** Returns a sentence for each name of the addon that cannot be a part of the raw interface. */
export function faults(addon) {
  return [...addon].flatMap(([path, { kind, isFreed, params = [], type }]) => {
    if (kind === 'class' && !isFreed) return [`${path}: every class must have the method free`]
    const texts = [...params.map((param) => param.type.text), type?.text ?? '']
    const names = texts.flatMap((text) => [...text.matchAll(/\bRaw(\w+)/g)].map(([, name]) => name))
    return names
      .filter((name) => !addon.has(name))
      .map((name) => `${path}: the addon must declare ${name}, or name another type with ts_return_type`)
  })
}

/** Returns a sentence for each name on which the two bindings differ. */
export function misfits(addon, wasm, alone = ALONE) {
  return [
    ...missing(addon, wasm, reasonsOf(alone.addon), 'the addon', 'WebAssembly'),
    ...missing(wasm, addon, reasonsOf(alone.wasm), 'WebAssembly', 'the addon'),
    ...[...addon].flatMap(([path, entry]) => different(path, entry, wasm.get(path))),
  ]
}

/** The reason of each name that only one binding has. */
function reasonsOf(alone) {
  return new Map(Object.entries(alone).flatMap(([reason, paths]) => paths.map((path) => [path, reason])))
}

/** Sentences for the names of one binding that the other lacks without a reason, and for reasons that are not needed. */
function missing(mine, other, reasons, myName, otherName) {
  const found = []
  for (const [path, { owner }] of mine) {
    if (reasons.has(owner)) continue
    if (!other.has(path) && !reasons.has(path) && (owner === undefined || other.has(owner)))
      found.push(
        `${path}: ${myName} has it, ${otherName} does not (ALONE of scripts/raw.mjs lists those that may)`,
      )
    if (other.has(path) && reasons.has(path))
      found.push(`${path}: both bindings have it: take it out of ALONE of scripts/raw.mjs`)
  }
  const stale = [...reasons.keys()].filter((path) => !mine.has(path))
  return [
    ...found,
    ...stale.map((path) => `${path}: ALONE of scripts/raw.mjs lists it, ${myName} does not have it`),
  ]
}

function different(path, entry, other) {
  if (other === undefined) return []
  if (other.type?.isPromise && !entry.type?.isPromise)
    return [`${path}: only WebAssembly returns a promise; the addon must return one too`]
  const [mine, theirs] = [shapeOf(entry), shapeOf(other)]
  return mine === theirs ? [] : [`${path}: the addon has ${mine}, WebAssembly ${theirs}`]
}

/** The kind, arguments and result on which both bindings must agree. Null equals undefined, and a promise its value. */
function shapeOf({ kind, params, type }) {
  const result = type ? `: ${type.text}${type.isNullable ? ' | null' : ''}` : ''
  if (!params) return `${kind}${result}`
  const names = params.map((param) => `${param.name}${param.type.isNullable ? '?' : ''}: ${param.type.text}`)
  return `${kind} (${names.join(', ')})${result}`
}

/** Returns the text of `raw.ts`. */
export function rawInterface(addon, alone = ALONE) {
  const reasons = reasonsOf(alone.addon)
  const entries = [...addon].map(([path, entry]) => ({ ...entry, reason: reasons.get(path) }))
  const membersOf = ({ name }, ...kinds) =>
    entries.filter(({ owner, kind }) => owner === name && kinds.includes(kind))
  const owners = entries.filter(({ kind }) => kind === 'class' || kind === 'record')
  const offered = entries.flatMap((entry) => {
    if (entry.kind === 'function') return [{ ...entry, lines: signature(entry, entry.name, '  ') }]
    if (entry.kind !== 'class') return []
    const made = membersOf(entry, 'constructor', 'static')
    return made.length > 0 ? [{ ...entry, lines: constructorsOf(entry, made) }] : []
  })
  const both = offered.filter(({ reason }) => !reason)
  const native = offered.filter(({ reason }) => reason)
  return [
    '/** The raw interface: what the addon and the WebAssembly module offer. `npm run raw` writes this file from the bindings. */',
    '',
    "import type { Later, RawOwner } from './raw-owner.js'",
    ...['', '/** Functions and classes of both bindings; those of the addon alone are optional. */'],
    ...['export interface Raw extends Partial<RawAddon> {', ...both.flatMap(({ lines }) => lines), '}'],
    ...['', '/** Functions and classes that only the addon has. */', 'export interface RawAddon {'],
    ...[...native.flatMap(({ lines }) => lines), '}'],
    ...owners.flatMap((owner) => interfaceOf(owner, membersOf(owner, 'method', 'field'))),
    '',
  ].join('\n')
}

function interfaceOf(owner, members) {
  const base = owner.kind === 'class' ? ' extends RawOwner' : ''
  const lines = members.flatMap((member) =>
    member.kind === 'field' ? fieldOf(member) : signature(member, member.name, '  '),
  )
  return ['', ...docLines(owner, ''), `export interface Raw${owner.name}${base} {`, ...lines, '}']
}

function fieldOf({ name, type, doc }) {
  const [mark, absent] = type.isNullable ? ['?', ' | undefined'] : ['', '']
  return [...docLines({ doc }, '  '), `  readonly ${name}${mark}: ${type.text}${absent}`]
}

/** The constructors and static functions of a class, as a property. */
function constructorsOf({ name, reason }, made) {
  const lines = made.flatMap((entry) => signature(entry, entry.name ?? 'new ', '    '))
  return [...docLines({ doc: [], reason }, '  '), `  readonly ${name}: {`, ...lines, '  }']
}

/** A doc and a signature, one argument a line if it is too long. A member that WebAssembly lacks is optional. */
function signature({ kind, owner, params, type, doc, reason }, name, indent) {
  const result = kind === 'constructor' ? `Raw${owner}` : resultOf(type, reason)
  const args = params.map(argumentOf)
  const head = `${indent}${name}${reason && owner ? '?' : ''}(`
  const line = `${head}${args.join(', ')}): ${result}`
  const lines = [head, ...args.map((arg) => `${indent}  ${arg},`), `${indent}): ${result}`]
  return [...docLines({ doc, reason }, indent), ...(line.length > WIDTH_MAX ? lines : [line])]
}

/** The addon gives null where WebAssembly gives undefined, and a promise where WebAssembly gives the value. */
function resultOf({ text, isNullable, isPromise }, reason) {
  const value = isNullable ? `${text} | null | undefined` : text
  if (!isPromise) return value
  return reason ? `Promise<${value}>` : `Later<${value}>`
}

/** An argument, with a question mark if all arguments after it can be left out too. */
function argumentOf({ name, type }, at, all) {
  if (!type.isNullable) return `${name}: ${type.text}`
  const canBeLeftOut = all.slice(at).every((param) => param.type.isNullable)
  return `${name}${canBeLeftOut ? '?' : ''}: ${type.text} | null | undefined`
}

function docLines({ doc, reason }, indent) {
  const lines = reason ? [...doc, `Only the addon has it: ${reason}.`] : doc
  if (lines.length === 0) return []
  const [only] = lines
  const text = `${indent}/** ${only} */`
  if (lines.length === 1) return [text]
  return [`${indent}/**`, ...lines.map((line) => `${indent} * ${line}`.trimEnd()), `${indent} */`]
}
