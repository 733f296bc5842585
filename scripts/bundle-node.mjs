/**
 * One file a room instead of one a noun, for the package's import condition `node`: Node takes a third of a millisecond for each file
 * that it imports. Bundlers read the single files, of which they keep what a program uses.
 */

import { readFileSync } from 'node:fs'
import { join, relative, sep } from 'node:path'

/** Files that a program starts by their address, in the folder of the file that names them. */
const STARTED = ['policy/policy-worker', 'policy/onnx-process', 'dataset/preprocess-worker']

/** IFEval, whose tables are 0.6 MB, apart from the other rewards and tasks. */
const APART = /[\\/](reward[\\/]ifeval[\\/]|task[\\/]ifeval\.js$)/

/** Tools that run programs or speak to them, apart from the others: `import 'fulmar'` needs none of these. */
const PROGRAMS =
  /[\\/]tools[\\/](browser|bubblewrap|interpreter|mcp|pyodide|python-tool|sandbox|seccomp)[^\\/]*\.js$/

/** Files that are imported on use, apart from their rooms: token data sets with the formats of tables, and programs in groups. */
const ON_USE = [
  ['token-data', /[\\/]torchrl[\\/]data[\\/](text-rows|token-folder|tokenize-dataset)\.js$/],
  ['groups', /[\\/]async[\\/]programs\.js$/],
]

/**
 * Writes `dist/node/` below `folder` from its `dist/`, and returns the `exports` of its manifest with a condition `node` for each
 * entry of JavaScript.
 */
export async function bundleForNode(folder, { exports }) {
  const { rolldown } = await import('rolldown')
  const dist = join(folder, 'dist')
  const input = Object.fromEntries(STARTED.map((path) => [path.split('/').at(-1), join(dist, `${path}.js`)]))
  const entries = {}
  for (const [entry, target] of Object.entries(exports)) {
    if (typeof target === 'string' || !target.default) entries[entry] = target
    else {
      const name = entry === '.' ? 'fulmar' : `fulmar-${entry.slice(2).replaceAll('/', '-')}`
      input[name] = join(folder, target.default)
      entries[entry] = { ...target, node: `./dist/node/${name}.js` }
      // The last of the conditions is the one for all others.
      entries[entry] = Object.fromEntries(
        Object.entries(entries[entry]).sort(
          ([left], [right]) => (left === 'default') - (right === 'default'),
        ),
      )
    }
  }
  const bundle = await rolldown({
    input,
    platform: 'node',
    preserveEntrySignatures: 'allow-extension',
    // The tables are constants too.
    optimization: { inlineConst: false },
    external: (id) => !id.startsWith('.') && !id.startsWith(folder),
    plugins: [
      {
        name: 'maps',
        load: (id) => ({ code: readFileSync(id, 'utf8'), map: readFileSync(`${id}.map`, 'utf8') }),
      },
    ],
  })
  const roomOf = (id) => {
    const [room, file] = relative(dist, id).split(sep)
    // An entry leads to several rooms; a started file runs at once.
    if (file === undefined || room === 'entry' || STARTED.some((path) => id === join(dist, `${path}.js`)))
      return null
    if (PROGRAMS.test(id)) return 'programs'
    const [apart] = ON_USE.find(([, pattern]) => pattern.test(id)) ?? []
    if (apart) return apart
    return APART.test(id) ? 'ifeval' : room
  }
  await bundle.write({
    dir: join(dist, 'node'),
    format: 'esm',
    sourcemap: true,
    keepNames: true,
    chunkFileNames: '[name].js',
    codeSplitting: {
      includeDependenciesRecursively: false,
      groups: [{ debugName: 'rooms', name: roomOf }],
    },
  })
  await bundle.close()
  return entries
}
