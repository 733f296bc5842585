/** The tensors of a dictionary by one flat name each, as torch's state dicts. */

import { checkGiven, FulmarError } from '../core/index.js'
import { Tensor } from './tensor.js'
import { TensorDict } from './tensor-dict.js'

/** Returns all tensors of `dict` by their path, its names joined by dots. */
export function stateDictOf(dict: TensorDict): Record<string, Tensor> {
  const flat = dict.flattenKeys('.')
  const tensors = flat.keys().map((name) => [name, flat.get([name])] as const)
  return Object.fromEntries(tensors.filter((pair): pair is [string, Tensor] => pair[1] instanceof Tensor))
}

/**
 * Returns the tensors of `state` in a dictionary, at the paths that they have in `dict`.
 * @throws {FulmarError} `UNKNOWN_NAME` if the names are not exactly those of {@link stateDictOf}.
 */
export function dictOfState(dict: TensorDict, state: Readonly<Record<string, Tensor>>): TensorDict {
  checkGiven('state', state)
  const rest = new Map(Object.entries(state))
  const made = TensorDict.from({}, { batchSize: dict.batchSize })
  for (const path of dict.leafKeys()) {
    if (!(dict.get(path) instanceof Tensor)) continue
    const tensor = rest.get(path.join('.'))
    if (tensor === undefined) throw otherNames(path.join('.'))
    made.set(path, tensor)
    rest.delete(path.join('.'))
  }
  for (const name of rest.keys()) throw otherNames(name)
  return made
}

function otherNames(name: string): FulmarError {
  const detail = `a state must have the names of this dictionary: got ${JSON.stringify(name)} in one of them only`
  return new FulmarError('UNKNOWN_NAME', detail)
}
