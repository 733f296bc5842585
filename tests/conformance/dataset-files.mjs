/** Files that a data set leaves in its folder, against those that torchrl leaves. */

import { readFile, stat } from 'node:fs/promises'
import { join } from 'node:path'
import { filesBelow } from './folder-hub.mjs'
import { same } from './golden-values.mjs'

/** Files of our own in a folder of rows. */
const OURS = /(?:^|\/)(?:conversion\.json|env_metadata\.json|metadata\.tdz)$/

/** Texts, which are JSON here. */
const PICKLE = /\/pickle\.pkl$/

/** Flags that torchrl does not make, at the root and below `next`. */
const MADE = /^(?:next\/)?(?:is_init|done|terminated|truncated)\.memmap$/

/** The first name that is missing or strange, or the first leaf of another length. */
export async function filesDiffer(folder, wanted, hasFlags = false) {
  const names = filesBelow(folder)
  const odd = wanted.find((pair) => pair.length !== 2)
  if (odd) return `files: ${odd} is no name with a length`
  const theirs = new Set(wanted.map(([name]) => name))
  const lost = [...theirs].find((name) => !names.includes(name) && !PICKLE.test(name))
  const strange = names.find(
    (name) => !theirs.has(name) && !(hasFlags && MADE.test(name)) && !OURS.test(name),
  )
  if (lost ?? strange) return `files: ${lost ? `${lost} is not there` : `${strange} is strange`}`
  for (const [name, size] of wanted.filter(([one]) => one.endsWith('.memmap'))) {
    const wrong = same((await stat(join(folder, name))).size, size)
    if (wrong) return `${name}: ${wrong}`
  }
  return undefined
}

/** The files of videos and the numbers of their frames. */
export async function manifestDiffers(folder, manifest) {
  const refs = JSON.parse(await readFile(join(folder, 'video_refs.json'), 'utf8'))
  const below = ({ paths, num_frames_per_file }) => ({
    paths: paths.map((path) => path.split(/snapshots\/\w+\//).at(-1)),
    num_frames_per_file,
  })
  return same(Object.fromEntries(Object.entries(refs).map(([key, one]) => [key, below(one)])), manifest)
}
