/** Metadata of data sets: that of D4RL is a dictionary, that of Minari JSON with descriptions of spaces. */

import { at } from './dataset-reads.mjs'
import { rowsDiffer, sorted } from './dataset-values.mjs'
import { DTYPES } from './dtypes.mjs'
import { same } from './golden-values.mjs'

/** The first differences of the metadata of each class. */
export function metadataDiffers({ row: { topic, dataset_id: id }, ok, buffer }) {
  if (topic === 'D4RL') {
    if (!ok.metadata.$td) return same(buffer.metadata.keys(), [])
    return rowsDiffer(buffer.metadata, ok.metadata)
  }
  return [ok.metadata, ok.env_metadata]
    .map((one) => one && fieldsDiffer(buffer.metadata, one, id))
    .find(Boolean)
}

/** The original adds the parts of the name, and those of the environment's to its specification. */
function fieldsDiffer(metadata, { env_spec: spec, data_path: _, ...theirs }, id) {
  const { env_spec: own, observation_space, action_space, ...rest } = metadata
  const ours = { ...rest, observation_space: spaceAs(observation_space), action_space: spaceAs(action_space) }
  const { namespace, name, version } = partsOf(id)
  const parts = { combined_datasets: [], namespace, dataset_name: name, version }
  const names = [...Object.keys(own), 'namespace', 'name', 'version']
  return (
    same(sorted({ ...parts, ...pick(ours, Object.keys(theirs)) }), sorted(theirs)) ??
    at(
      'env_spec',
      same(sorted({ ...partsOf(own.id), ...pick(own, Object.keys(spec)) }), sorted(pick(spec, names))),
    )
  )
}

function partsOf(id) {
  const [, namespace = null, name, version] = /^(?:(.+)\/)?([^/]+)-v(\d+)$/.exec(id)
  return { namespace, name, version: Number(version) }
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
