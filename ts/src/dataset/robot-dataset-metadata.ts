/** Description of a data set of a robot. */

import { checkKnownKeys, describeValue, FulmarError, messageOf, parseJson } from '../core/index.js'
import { Bounded, type TensorSpec, Unbounded } from '../spec/index.js'
import type { TensorKey } from '../tensor/index.js'
import { checkCountOf, numbersOfOption } from './action-tokenizer.js'

/** Meaning of the numbers of an action. */
export type RobotActionSpace =
  | 'joint_delta'
  | 'joint_position'
  | 'eef_delta'
  | 'eef_pose'
  | 'velocity'
  | 'mixed'
  | 'unknown'

/** Values that the gripper's action has. */
export type GripperMode = 'continuous' | 'binary' | 'none' | 'unknown'

/** Options of {@link RobotDatasetMetadata}. */
export interface RobotDatasetMetadataOptions {
  /** Name of the robot. @default none */
  readonly embodimentId?: string
  /** Numbers of an action, from 1. @default none */
  readonly actionDim?: number
  /** A name for each number of an action. @default none */
  readonly actionNames?: readonly string[]
  /** @default 'unknown' */
  readonly actionSpace?: RobotActionSpace
  /** @default 'unknown' */
  readonly gripperMode?: GripperMode
  /** Actions a second, in hertz. @default none */
  readonly controlFrequencyHz?: number
  /** Keys of the cameras. @default none */
  readonly cameraKeys?: readonly TensorKey[]
  /** Key of the robot's state; null for none. @default ['observation', 'state'] */
  readonly stateKey?: TensorKey | null
  /** Key of the instruction; null for none. @default 'language_instruction' */
  readonly instructionKey?: TensorKey | null
  /** @default 'action' */
  readonly actionKey?: TensorKey
  /** Mean of each number of an action. @default none */
  readonly actionMean?: readonly number[]
  /** Standard deviation of each number of an action. @default none */
  readonly actionStd?: readonly number[]
  /** Least value of each number of an action. @default none */
  readonly actionLow?: readonly number[]
  /** Largest value of each number of an action. @default none */
  readonly actionHigh?: readonly number[]
  /** @default none */
  readonly license?: string
  /** @default none */
  readonly sourceUrl?: string
}

/** Field of the JSON of TorchRL for each of ours, in its order. */
const FIELDS = {
  datasetId: 'dataset_id',
  embodimentId: 'embodiment_id',
  actionDim: 'action_dim',
  actionNames: 'action_names',
  actionSpace: 'action_space',
  gripperMode: 'gripper_mode',
  controlFrequencyHz: 'control_frequency_hz',
  cameraKeys: 'camera_keys',
  stateKey: 'state_key',
  instructionKey: 'instruction_key',
  actionKey: 'action_key',
  actionMean: 'action_mean',
  actionStd: 'action_std',
  actionLow: 'action_low',
  actionHigh: 'action_high',
  license: 'license',
  sourceUrl: 'source_url',
} as const

const OPTIONS = Object.keys(FIELDS).filter((name) => name !== 'datasetId')
const SPACES = ['joint_delta', 'joint_position', 'eef_delta', 'eef_pose', 'velocity', 'mixed', 'unknown']
const GRIPPERS = ['continuous', 'binary', 'none', 'unknown']
const VECTORS = ['actionMean', 'actionStd', 'actionLow', 'actionHigh'] as const

/**
 * Describes a data set of a robot: what an action is, which keys hold what, and where it is from. Its JSON is TorchRL's.
 *
 * @example
 * ```ts
 * import { RobotDatasetMetadata } from 'fulmar/dataset'
 * import assert from 'node:assert/strict'
 *
 * const metadata = new RobotDatasetMetadata('lerobot/pusht', { actionDim: 2, actionLow: [0, 0], actionHigh: [512, 512] })
 * assert.ok(metadata.makeActionSpec().contains(metadata.makeActionSpec().zero()))
 * assert.deepEqual(RobotDatasetMetadata.fromJson(metadata.toJson()), metadata)
 * ```
 */
export class RobotDatasetMetadata {
  readonly datasetId: string
  readonly embodimentId: string | undefined
  readonly actionDim: number | undefined
  readonly actionNames: readonly string[] | undefined
  readonly actionSpace: RobotActionSpace
  readonly gripperMode: GripperMode
  readonly controlFrequencyHz: number | undefined
  readonly cameraKeys: readonly TensorKey[]
  readonly stateKey: TensorKey | null
  readonly instructionKey: TensorKey | null
  readonly actionKey: TensorKey
  readonly actionMean: readonly number[] | undefined
  readonly actionStd: readonly number[] | undefined
  readonly actionLow: readonly number[] | undefined
  readonly actionHigh: readonly number[] | undefined
  readonly license: string | undefined
  readonly sourceUrl: string | undefined

  /**
   * @throws {FulmarError} `MALFORMED` for a value of another type; `UNKNOWN_NAME` for an unknown option, action space or mode of
   *   the gripper; `OUT_OF_RANGE` if `actionDim` is less than 1; `SHAPE_MISMATCH` if a list has not `actionDim` entries.
   */
  constructor(datasetId: string, options: RobotDatasetMetadataOptions = {}) {
    checkKnownKeys('options', options, OPTIONS)
    checkText('datasetId', datasetId)
    const { actionSpace = 'unknown', gripperMode = 'unknown', actionDim, controlFrequencyHz } = options
    checkOneOf('actionSpace', actionSpace, SPACES)
    checkOneOf('gripperMode', gripperMode, GRIPPERS)
    if (actionDim !== undefined) checkCountOf('options.actionDim', actionDim, 1)
    for (const name of ['embodimentId', 'license', 'sourceUrl'] as const)
      if (options[name] !== undefined) checkText(`options.${name}`, options[name])
    if (controlFrequencyHz !== undefined) numbersOfOption('options.controlFrequencyHz', controlFrequencyHz)
    const { actionNames, cameraKeys = [], stateKey = ['observation', 'state'] } = options
    const { instructionKey = 'language_instruction', actionKey = 'action' } = options
    if (actionNames !== undefined && !isTexts(actionNames))
      throw new FulmarError(
        'MALFORMED',
        `options.actionNames must be texts: got ${describeValue(actionNames)}`,
      )
    if (!Array.isArray(cameraKeys))
      throw new FulmarError(
        'MALFORMED',
        `options.cameraKeys must be a list: got ${describeValue(cameraKeys)}`,
      )
    for (const [at, key] of cameraKeys.entries()) checkKey(`cameraKeys[${at}]`, key)
    for (const [name, key] of Object.entries({ stateKey, instructionKey, actionKey }))
      if (key !== null || name === 'actionKey') checkKey(name, key)
    const vectors = VECTORS.map((name) => vectorOf(name, options[name]))
    for (const [name, list] of Object.entries({ actionNames, ...vectorsByName(vectors) }))
      checkLength(name, list, actionDim)
    this.datasetId = datasetId
    this.embodimentId = options.embodimentId
    this.actionDim = actionDim
    this.actionNames = actionNames
    this.actionSpace = actionSpace
    this.gripperMode = gripperMode
    this.controlFrequencyHz = controlFrequencyHz
    this.cameraKeys = cameraKeys
    this.stateKey = stateKey
    this.instructionKey = instructionKey
    this.actionKey = actionKey
    ;[this.actionMean, this.actionStd, this.actionLow, this.actionHigh] = vectors
    this.license = options.license
    this.sourceUrl = options.sourceUrl
  }

  /**
   * Reads the JSON of {@link RobotDatasetMetadata.toJson} or of TorchRL; fields that it has beyond are left out.
   * @throws {FulmarError} `MALFORMED` for what is not an object of JSON; those of the constructor.
   */
  static fromJson(text: string): RobotDatasetMetadata {
    const fields = objectOf(text)
    const options = OPTIONS.map(
      (name) => [name, fields[FIELDS[name as keyof typeof FIELDS]]] as const,
    ).filter(
      ([name, value]) => value !== undefined && (value !== null || /^(?:state|instruction)Key$/.test(name)),
    )
    return new RobotDatasetMetadata(fields.dataset_id as string, Object.fromEntries(options))
  }

  /** The metadata as JSON, with TorchRL's names of fields. */
  toJson(): string {
    const fields = Object.entries(FIELDS).map(([name, field]) => [
      field,
      this[name as keyof typeof FIELDS] ?? null,
    ])
    return JSON.stringify(Object.fromEntries(fields), null, 2)
  }

  /**
   * The spec of actions, f32 of `[...shapePrefix, actionDim]`: bounded if both bounds are given.
   * @throws {FulmarError} `MALFORMED` without `actionDim`; those of {@link Bounded}.
   */
  makeActionSpec(options: { readonly shapePrefix?: readonly number[] } = {}): TensorSpec {
    checkKnownKeys('options', options, ['shapePrefix'])
    const { actionDim, actionLow, actionHigh } = this
    if (actionDim === undefined)
      throw new FulmarError(
        'MALFORMED',
        `actionDim must be given for a spec of actions: ${this.datasetId} has none`,
      )
    const shape = [...(options.shapePrefix ?? []), actionDim]
    if (actionLow === undefined || actionHigh === undefined) return new Unbounded({ shape })
    return new Bounded([...actionLow], [...actionHigh], { shape })
  }
}

function objectOf(text: string): Readonly<Record<string, unknown>> {
  checkText('text', text)
  let fields: unknown
  try {
    fields = parseJson(text)
  } catch (cause) {
    throw new FulmarError('MALFORMED', `text must be JSON: got ${messageOf(cause)}`, { cause })
  }
  if (typeof fields === 'object' && fields !== null && !Array.isArray(fields)) return { ...fields }
  throw new FulmarError('MALFORMED', `text must be an object of JSON: got ${describeValue(fields)}`)
}

function vectorsByName(vectors: readonly (readonly number[] | undefined)[]) {
  return Object.fromEntries(VECTORS.map((name, at) => [name, vectors[at]]))
}

/** The numbers as single precision keeps them. */
function vectorOf(name: string, value: unknown): readonly number[] | undefined {
  if (value === undefined) return undefined
  return numbersOfOption(`options.${name}`, value).map(Math.fround)
}

function checkLength(
  name: string,
  list: readonly unknown[] | undefined,
  actionDim: number | undefined,
): void {
  if (list === undefined || actionDim === undefined || list.length === actionDim) return
  const detail = `options.${name} must have options.actionDim entries, ${actionDim}: got ${list.length}`
  throw new FulmarError('SHAPE_MISMATCH', detail)
}

function checkOneOf(name: string, value: unknown, known: readonly string[]): void {
  if (typeof value === 'string' && known.includes(value)) return
  const got = describeValue(value)
  throw new FulmarError('UNKNOWN_NAME', `options.${name} must be one of ${known.join(', ')}: got ${got}`)
}

function checkText(name: string, value: unknown): void {
  if (typeof value === 'string') return
  throw new FulmarError('MALFORMED', `${name} must be a text: got ${describeValue(value)}`)
}

function checkKey(name: string, key: unknown): void {
  if (typeof key === 'string' || (isTexts(key) && key.length > 0)) return
  throw new FulmarError('MALFORMED', `options.${name} must be a key: got ${describeValue(key)}`)
}

function isTexts(value: unknown): value is readonly string[] {
  return Array.isArray(value) && value.every((one) => typeof one === 'string')
}
