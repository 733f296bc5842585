/** Check of the keys that policies of vision, language and action read. */

import { checkKnownKeys, describeValue, FulmarError } from '../core/index.js'
import { NonTensorData, NonTensorStack, Tensor, TensorDict, type TensorKey } from '../tensor/index.js'

/** Options of {@link validateVlaTensordict}. */
export interface ValidateVlaOptions {
  /** @default 'language_instruction' */
  readonly instructionKey?: TensorKey
  /** @default 'action' */
  readonly actionKey?: TensorKey
  /** @default ['observation', 'image'] */
  readonly imageKey?: TensorKey
  /** @default ['observation', 'state'] */
  readonly stateKey?: TensorKey
  /** @default true */
  readonly requireInstruction?: boolean
  /** @default true */
  readonly requireAction?: boolean
  /** Requires an image or a state. @default true */
  readonly requirePerception?: boolean
  /** Requires finite actions. @default true */
  readonly checkFinite?: boolean
  /** Throws if there is an issue. @default true */
  readonly throwOnIssue?: boolean
}

const KEYS = ['instructionKey', 'actionKey', 'imageKey', 'stateKey']
const FLAGS = ['requireInstruction', 'requireAction', 'requirePerception', 'checkFinite', 'throwOnIssue']

/**
 * Finds what a dictionary lacks of the keys `observation.image`, `observation.state`, `language_instruction` and `action`.
 * Returns a sentence for each issue.
 * @throws {FulmarError} `INCOMPATIBLE`, with all issues, unless `throwOnIssue` is false; `MALFORMED` for an argument of another
 *   type; `UNKNOWN_NAME` for an unknown option.
 *
 * @example
 * ```ts
 * import { Tensor, TensorDict } from 'fulmar'
 * import { validateVlaTensordict } from 'fulmar/dataset'
 * import assert from 'node:assert/strict'
 *
 * const batch = TensorDict.from({ action: Tensor.from([1, 2]) }, { batchSize: [2] })
 * const options = { requirePerception: false, throwOnIssue: false }
 * assert.deepEqual(validateVlaTensordict(batch, options), ['missing language instruction at language_instruction'])
 * ```
 */
export function validateVlaTensordict(dict: TensorDict, options: ValidateVlaOptions = {}): readonly string[] {
  checkKnownKeys('options', options, [...KEYS, ...FLAGS])
  if (!(dict instanceof TensorDict))
    throw new FulmarError('MALFORMED', `dict must be a TensorDict: got ${describeValue(dict)}`)
  for (const name of FLAGS) checkFlag(name, Reflect.get(options, name))
  const issues = [
    ...instructionIssues(dict, options),
    ...perceptionIssues(dict, options),
    ...actionIssues(dict, options),
  ]
  if (issues.length === 0 || options.throwOnIssue === false) return issues
  throw new FulmarError(
    'INCOMPATIBLE',
    `dict must have the keys of vision, language and action: ${issues.join('; ')}`,
  )
}

function checkFlag(name: string, value: unknown): void {
  if (value === undefined || typeof value === 'boolean') return
  throw new FulmarError('MALFORMED', `options.${name} must be a boolean: got ${describeValue(value)}`)
}

function instructionIssues(dict: TensorDict, options: ValidateVlaOptions): readonly string[] {
  const { instructionKey = 'language_instruction', requireInstruction = true } = options
  const entry = dict.get(instructionKey)
  if (entry === undefined)
    return requireInstruction ? [`missing language instruction at ${shown(instructionKey)}`] : []
  const texts =
    entry instanceof NonTensorStack ? entry.values : entry instanceof NonTensorData ? [entry.value] : []
  const isEmpty = texts.some((text) => typeof text === 'string' && text.trim() === '')
  return isEmpty ? [`empty language instruction at ${shown(instructionKey)}`] : []
}

function perceptionIssues(dict: TensorDict, options: ValidateVlaOptions): readonly string[] {
  const { imageKey = ['observation', 'image'], stateKey = ['observation', 'state'] } = options
  if (options.requirePerception === false || dict.has(imageKey) || dict.has(stateKey)) return []
  return [`missing perception: neither an image at ${shown(imageKey)} nor a state at ${shown(stateKey)}`]
}

function actionIssues(dict: TensorDict, options: ValidateVlaOptions): readonly string[] {
  const { actionKey = 'action', requireAction = true, checkFinite = true } = options
  const action = dict.get(actionKey)
  if (action === undefined) return requireAction ? [`missing action at ${shown(actionKey)}`] : []
  if (!checkFinite || !(action instanceof Tensor) || !/^b?f\d+$/.test(action.dtype)) return []
  const numbers = action.dtype === 'f64' ? (action.data as Float64Array) : action.toFloat32()
  return numbers.every((number) => Number.isFinite(number))
    ? []
    : [`non-finite action at ${shown(actionKey)}`]
}

function shown(key: TensorKey): string {
  return typeof key === 'string' ? key : key.join('.')
}
