/** Metadata of data sets: that of D4RL is a dictionary, that of Minari JSON with descriptions of spaces. */

import { rowsDiffer, sorted } from './dataset-values.mjs'
import { DTYPES } from './dtypes.mjs'
import { same } from './golden-values.mjs'

/** The first differences of the metadata of each class. */
export function metadataDiffers({ row: { topic, dataset_id: id }, ok, buffer }) {
  if (topic === 'D4RL') {
    if (!ok.metadata.$td) return same(buffer.metadata.keys(), [])
    return rowsDiffer(buffer.metadata, ok.metadata)
  }
  const { env_spec: spec, data_path: _, ...theirs } = ok.env_metadata ?? ok.metadata
  // The original adds the parts of the name, to the specification of the environment too.
  const [, namespace, name, version] = /^(?:(.+)\/)?([^/]+)-v(\d+)$/.exec(id)
  const parts = { combined_datasets: [], namespace, dataset_name: name, version: Number(version) }
  const { env_spec: own, observation_space, action_space, ...rest } = buffer.metadata
  const ours = { ...rest, observation_space: spaceAs(observation_space), action_space: spaceAs(action_space) }
  return (
    same(sorted({ ...parts, ...pick(ours, Object.keys(theirs)) }), sorted(theirs)) ??
    same(sorted(own), sorted(pick(spec, Object.keys(own))))
  )
}

/** A space as the original writes it again: without texts, and whole numbers from 0. */
function spaceAs(space) {
  if (space.type === 'Text') return null
  if (space.type === 'Dict')
    return {
      ...space,
      subspaces: Object.fromEntries(
        Object.entries(space.subspaces).map(([name, one]) => [name, spaceAs(one)]),
      ),
    }
  const { start: _, ...rest } = space
  return space.type === 'Discrete' ? { ...rest, shape: [] } : rest
}

const pick = (value, names) =>
  Object.fromEntries(names.filter((name) => Object.hasOwn(value, name)).map((name) => [name, value[name]]))

/** The classes and shapes of the specs of spaces. Those of dictionaries have no dtype of their own. */
export function specsDiffer({ ok: { specs }, buffer }) {
  const shown = (spec) => [spec.constructor.name, [...spec.shape], ...(spec.dtype ? [spec.dtype] : [])]
  const wanted = ([name, shape, dtype]) => [
    name,
    shape,
    ...(name === 'Composite' ? [] : [DTYPES[dtype.replace('torch.', '')]]),
  ]
  return same(
    [shown(buffer.observationSpec), shown(buffer.actionSpec)],
    [wanted(specs.observation_space), wanted(specs.action_space)],
  )
}
