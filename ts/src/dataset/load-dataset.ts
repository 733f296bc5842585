/** Data sets by the name of their source and their id. */

import { checkKnownKeys, describeValue, FulmarError, nearestName } from '../core/index.js'
import { AtariDQNExperienceReplay, type AtariDQNOptions } from './atari-dqn-experience-replay.js'
import { D4RLExperienceReplay, type D4RLOptions } from './d4rl-experience-replay.js'
import type { BaseDatasetExperienceReplay } from './dataset-experience-replay.js'
import { GenDGRLExperienceReplay, type GenDGRLOptions } from './gen-dgrl-experience-replay.js'
import { LeRobotExperienceReplay, type LeRobotOptions } from './lerobot-experience-replay.js'
import { MinariExperienceReplay, type MinariOptions } from './minari-experience-replay.js'
import { OpenMLExperienceReplay, type OpenMLOptions } from './openml-experience-replay.js'
import { OpenXExperienceReplay } from './openx-experience-replay.js'
import type { OpenXOptions } from './openx-options.js'
import type { OpenXStream } from './openx-stream.js'
import { RobosetExperienceReplay, type RobosetOptions } from './roboset-experience-replay.js'
import { VD4RLExperienceReplay, type VD4RLOptions } from './vd4rl-experience-replay.js'

/** Opens the data set `id` of a source. */
export type DatasetFactory<T = unknown> = (
  id: string,
  options: Readonly<Record<string, unknown>>,
) => T | Promise<T>

const factories = new Map<string, DatasetFactory>([
  ['atari', (id, options) => AtariDQNExperienceReplay.open(id, options)],
  ['atari_dqn', (id, options) => AtariDQNExperienceReplay.open(id, options)],
  ['d4rl', (id, options) => D4RLExperienceReplay.open(id, options)],
  ['lerobot', (id, options) => LeRobotExperienceReplay.open(id, options)],
  ['gen_dgrl', (id, options) => GenDGRLExperienceReplay.open(id, options)],
  ['minari', (id, options) => MinariExperienceReplay.open(id, options)],
  ['openx', (id, options) => OpenXExperienceReplay.open(id, options)],
  ['openml', (id, options) => OpenMLExperienceReplay.open(id, options)],
  ['roboset', (id, options) => RobosetExperienceReplay.open(id, options)],
  ['vd4rl', (id, options) => VD4RLExperienceReplay.open(id, options)],
])

/** Names of the sources in order. */
export function datasetSources(): readonly string[] {
  return [...factories.keys()].sort()
}

/**
 * Opens a data set by `SOURCE:ID`. The case of the source does not matter.
 * @throws {FulmarError} `MALFORMED` without a source, or where a source returns nothing; `UNKNOWN_NAME` for an unknown one, with the nearest; those of the source.
 *
 * @example
 * ```ts
 * import { loadDataset, registerDataset } from 'fulmar/dataset'
 * import assert from 'node:assert/strict'
 *
 * registerDataset('toy', (id) => id)
 * assert.equal(await loadDataset('toy:a:b'), 'a:b')
 * await assert.rejects(loadDataset('toys:a'), { code: 'UNKNOWN_NAME' })
 * ```
 */
export async function loadDataset(
  name: `atari:${string}` | `atari_dqn:${string}`,
  options?: AtariDQNOptions,
): Promise<AtariDQNExperienceReplay>
export async function loadDataset(
  name: `d4rl:${string}`,
  options?: D4RLOptions,
): Promise<D4RLExperienceReplay>
export async function loadDataset(
  name: `lerobot:${string}`,
  options?: LeRobotOptions,
): Promise<LeRobotExperienceReplay>
export async function loadDataset(
  name: `gen_dgrl:${string}`,
  options?: GenDGRLOptions,
): Promise<GenDGRLExperienceReplay>
export async function loadDataset(
  name: `minari:${string}`,
  options?: MinariOptions,
): Promise<MinariExperienceReplay>
export async function loadDataset(
  name: `openx:${string}`,
  options?: OpenXOptions,
): Promise<OpenXExperienceReplay | OpenXStream>
export async function loadDataset(
  name: `openml:${string}`,
  options?: OpenMLOptions,
): Promise<OpenMLExperienceReplay>
export async function loadDataset(
  name: `roboset:${string}`,
  options?: RobosetOptions,
): Promise<RobosetExperienceReplay>
export async function loadDataset(
  name: `vd4rl:${string}`,
  options?: VD4RLOptions,
): Promise<VD4RLExperienceReplay>
export async function loadDataset<T = BaseDatasetExperienceReplay>(
  name: string,
  options?: Readonly<Record<string, unknown>>,
): Promise<T>
export async function loadDataset(name: string, options: object = {}): Promise<unknown> {
  const [source, id] = splitName(name)
  const factory = factories.get(source)
  if (factory === undefined) {
    const nearest = nearestName(source, datasetSources())
    const hint = nearest === undefined ? '' : `; did you mean ${nearest}?`
    const detail = `source must be one of ${datasetSources().join(', ')}: got ${JSON.stringify(source)}${hint}`
    throw new FulmarError('UNKNOWN_NAME', detail)
  }
  return checkReturned(await factory(id, { ...options }), source, id)
}

/** Refuses the `undefined` of a factory that forgot its `return`, which fails only later where it is used. */
function checkReturned(dataset: unknown, source: string, id: string): unknown {
  if (dataset !== undefined && dataset !== null) return dataset
  const detail = `source ${source} must return a data set for ${JSON.stringify(id)}: got ${describeValue(dataset)}`
  throw new FulmarError('MALFORMED', detail)
}

/** @internal The source and the id of `SOURCE:ID`. @throws {FulmarError} `MALFORMED` for another form. */
export function splitName(name: unknown): readonly [string, string] {
  const at = typeof name === 'string' ? name.indexOf(':') : -1
  if (typeof name === 'string' && at >= 0) return [checkSource(name.slice(0, at)), name.slice(at + 1).trim()]
  const detail = `name must be a source and an id, such as d4rl:hopper-medium-v2: got ${describeValue(name)}`
  throw new FulmarError('MALFORMED', detail)
}

/**
 * Adds a source for {@link loadDataset}.
 * @throws {FulmarError} `MALFORMED` for a name that is empty or has a colon, or a factory that is not a function;
 *   `INCOMPATIBLE` if the source is there, unless `replace`.
 *
 * @example
 * ```ts
 * import { registerDataset } from 'fulmar/dataset'
 * import assert from 'node:assert/strict'
 *
 * registerDataset('mine', (id) => id)
 * assert.throws(() => registerDataset('mine', (id) => id), { code: 'INCOMPATIBLE' })
 * registerDataset('mine', (id) => id.length, { replace: true })
 * ```
 */
export function registerDataset(
  source: string,
  factory: DatasetFactory,
  options: { readonly replace?: boolean } = {},
): void {
  checkKnownKeys('options', options, ['replace'])
  const name = checkSource(source)
  if (typeof factory !== 'function')
    throw new FulmarError('MALFORMED', `factory must be a function: got ${describeValue(factory)}`)
  if (factories.has(name) && options.replace !== true) {
    const detail = `source must be new unless options.replace is true: got ${JSON.stringify(name)}, which is registered`
    throw new FulmarError('INCOMPATIBLE', detail)
  }
  factories.set(name, factory)
}

function checkSource(source: unknown): string {
  const name = typeof source === 'string' ? source.trim().toLowerCase() : ''
  if (name !== '' && !name.includes(':')) return name
  throw new FulmarError('MALFORMED', `source must be a name without a colon: got ${describeValue(source)}`)
}
