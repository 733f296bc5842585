/** The kind of each member of a row of a data set, and the members that are not compared as they are. */

import { isUnsplit } from './dataset-reads.mjs'
import { FLAG_KEYS } from './dataset-values.mjs'

const ROW_INDEX = 'positions of slices are one a row'
const LENGTHS = 'files of JSON have other lengths; those of leaves are compared'
const UNSPLIT = 'rows that were not split'

/** Members of all classes. */
const ASIDE = {
  note: 'a remark',
  source: 'the raw files, which are found by the id',
  'ok.storage': 'a class of the original',
  'ok.writer': 'a class; what it refuses is asked for',
  'ok.split_trajs_attribute': 'an attribute of the original',
  'ok.files.*.1': LENGTHS,
  'ok.tree.*.1': LENGTHS,
  'ok.again': 'a later construction: no request, the same rows',
  'ok.force': 'addresses of another client',
  'ok.immutable': 'words of another program',
  'ok.rows.index': 'what goes in',
  'ok.sample.index': 'what goes in',
  'ok.slice_sample.index': 'what goes in',
  'ok.sample.batch.k.index.s': ROW_INDEX,
  'ok.slice_sample.batch.k.index.s': ROW_INDEX,
  'ok.batches.*.s': ROW_INDEX,
  'ok.batches.*.k.index.s': ROW_INDEX,
  ...Object.fromEntries(['preprocess', 'preprocess_first_7'].flatMap(mappedAside)),
}

function mappedAside(name) {
  const parts = {
    fn: 'what is done',
    kwargs: 'how many rows',
    type: 'a class of the original',
    'files.*.1': LENGTHS,
  }
  return Object.entries(parts).map(([part, reason]) => [`ok.${name}.${part}`, reason])
}

/** The members of a row, see `members.mjs`. */
export const membersOf = (row) => ({
  input: 'id topic dataset_id options requests ok.processed',
  expected: row.topic === 'Minari_bug_all_zero' ? 'ok.len ok.sampler ok.data_path ok.data_path_root' : 'ok',
  refusal: 'error:ok',
  aside: { ...ASIDE, ...asideOf(row) },
})

/** The tolerance of numbers of a row. */
export function toleranceOf({ topic, options }) {
  if (topic === 'OpenML') return { relative: 1e-12, absolute: 1e-12 }
  return { relative: 0, absolute: options?.image_size ? 1e-4 : 1e-7 }
}

/** Further members that are not compared, because the original is wrong or its numbers are not ours to give. */
function asideOf(row) {
  const { topic, options = {} } = row
  if (topic === 'Minari_bug_all_zero') return { ok: 'zeros, which the original kept in place of all values' }
  if (topic === 'OpenML')
    return { 'ok.writes_are_allowed': 'they are not', 'ok.data_path': 'none', 'ok.data_path_root': 'none' }
  if (topic === 'AtariDQN') return asideOfFlags()
  if (topic === 'GenDGRL') return { 'ok.files': 'files of as many rows as the nominal length' }
  if (topic === 'OpenX') return { 'ok.batches.*.d': 'the begin of a slice is drawn' }
  if (topic === 'Minari') return { 'ok.metadata.data_path': 'a path', 'ok.env_metadata.data_path': 'a path' }
  if (options.image_size) return asideOfHashes()
  if (!isUnsplit(row)) return {}
  return { 'ok.rows': UNSPLIT, 'ok.row0': UNSPLIT, 'ok.files': UNSPLIT, 'ok.data_path': 'their folder' }
}

function asideOfFlags() {
  const places = 'row0 all rows.data sample.batch get.int get.slice get.list get.across get.column'.split(' ')
  const paths = places.flatMap((place) => FLAG_KEYS.map((key) => `ok.${place}.k.${key.join('.k.')}`))
  const flags = paths.flatMap((path) =>
    ['s', '$t'].map((part) => [`${path}.${part}`, 'flags are bool, one a row']),
  )
  return { ...Object.fromEntries(flags), 'ok.data_path': 'none', 'ok.data_path_root': 'none' }
}

/** Hashes of images that were resized, which may differ a little. */
function asideOfHashes() {
  const paths = ['pixels', 'next.k.pixels'].map((path) => `ok.sample.batch.k.${path}.sha256`)
  return Object.fromEntries(paths.map((path) => [path, 'a hash has no tolerance']))
}
