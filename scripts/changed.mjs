/**
 * The selection of `npm run ready -- --changed`: the stages that the files changed since a commit can break, and of their tests
 * those near the change. It is a first answer while one works; `npm run ready` is the whole.
 */

import { spawnSync } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { dirname } from 'node:path'
import { Refusal, root } from './steps.mjs'

/**
 * Returns the stages to run, each with its `scope`: the arguments that narrow it, or `undefined` where all of it runs.
 * Files count as changed where they differ from `commit`, and where Git does not know them and does not ignore them.
 */
export function stagesForChanges(stages, commit) {
  const scopes = new Map(scopesOf(changedFiles(commit)))
  return stages
    .filter(({ name }) => scopes.has(name))
    .map((stage) => ({ ...stage, scope: scopes.get(stage.name) }))
}

function changedFiles(commit) {
  const tracked = git('diff', '--name-only', '--diff-filter=d', '--no-renames', commit, '--')
  const deleted = git('diff', '--name-only', '--diff-filter=D', '--no-renames', commit, '--')
  const unknown = git('ls-files', '--others', '--exclude-standard')
  return { present: [...tracked, ...unknown].sort(), deleted }
}

function git(...args) {
  const { status, stdout, stderr } = spawnSync('git', args, { cwd: root, encoding: 'utf8' })
  if (status !== 0) throw new Refusal(`git ${args.join(' ')} failed: ${stderr.trim().split('\n', 1)[0]}`)
  return stdout.split('\n').filter(Boolean)
}

/** Returns pairs of a stage's name and its scope for the files `present` and `deleted`, paths from the root. */
export function* scopesOf({ present, deleted }) {
  const all = [...present, ...deleted]
  if (all.length === 0) return
  const any = (pattern) => all.some((file) => pattern.test(file))
  const rust = /^(crates|bindings|benches\/(rust|device))\/.*\.(rs|toml)$|^Cargo\.(toml|lock)$/
  const core =
    /^(crates\/fulmar[^/]*|bindings\/(node|faces))\/(src\/.*\.rs|.*\.toml|build\.rs)$|^Cargo\.(toml|lock)$/
  const script = /\.(ts|mjs|json)$|^page\//
  yield ['packages', undefined]
  yield ['tidy', undefined]
  if (any(rust)) yield ['rustfmt', undefined]
  if (any(rust)) yield ['clippy', undefined]
  if (any(rust)) yield ['rust', rustTargets(all.filter((file) => rust.test(file)))]
  if (any(/^(crates\/fulmar-cuda|benches\/device|tests\/device)\/|^scripts\/(cuda|on-device)/))
    yield ['cuda-emulated', undefined]
  if (any(/^(crates\/fulmar-(cuda|compute|model)|tests\/gpu)\/|^scripts\/cuda/))
    yield ['cuda-decoders', undefined]
  if (any(/^crates\/fulmar-cuda\/kernels\//)) yield ['cuda-compiled', undefined]
  if (any(core)) yield ['addon', undefined]
  if (any(core) || any(/^ts\/src\/native\/raw\.ts$/)) yield ['raw', undefined]
  if (any(core) || any(/^tests\/(golden|conformance)\/|^scripts\/conform/)) yield ['conform', undefined]
  if (any(/^ts\/src\//)) yield ['dist', undefined]
  if (any(/^ts\/src\/|^api\//)) yield ['api', undefined]
  if (any(/^(ts|page)\/|^tsconfig/)) yield ['tsc', undefined]
  if (any(/^scripts\/|^tests\/scripts\//)) yield ['scripts', undefined]
  if (any(/^tests\/conformance\//)) yield ['conform-runner', undefined]
  const formatted = present.filter((file) => script.test(file))
  if (formatted.length > 0) yield ['biome', formatted]
  // What a test of TypeScript reaches through the addon is not known: all of them run.
  const tests = present.filter((file) => /^ts\/.*\.ts$/.test(file))
  if (any(core)) yield ['native', undefined]
  else if (tests.length > 0) yield ['native', tests]
  const documents = present.filter((file) => /^ts\/src\/.*\.ts$|^docs\/.*\.md$|^README\.md$/.test(file))
  const examples = documents.filter((file) => readFileSync(root + file, 'utf8').includes('```ts'))
  if (examples.length > 0) yield ['docs-examples', examples]
}

/** Arguments of `cargo test`: the test programs of the crates that hold `files`, and of all crates built on those. */
function rustTargets(files) {
  const crates = workspaceCrates()
  const holds = ({ folder }) => files.some((file) => file.startsWith(`${folder}/`))
  if (!crates.some(holds) || files.some((file) => file.startsWith('Cargo.'))) return undefined
  const reached = new Set(crates.filter(holds).map(({ name }) => name))
  for (let size = 0; size < reached.size; ) {
    size = reached.size
    for (const { name, needs } of crates) if (needs.some((need) => reached.has(need))) reached.add(name)
  }
  const programs = crates.filter(({ name }) => reached.has(name)).flatMap(({ tests }) => tests)
  return ['--lib', ...[...new Set(programs)].flatMap((program) => ['--test', program])]
}

function workspaceCrates() {
  const args = ['metadata', '--no-deps', '--format-version', '1']
  const { status, stdout, stderr } = spawnSync('cargo', args, {
    cwd: root,
    encoding: 'utf8',
    maxBuffer: 2 ** 26,
  })
  if (status !== 0) throw new Refusal(`cargo metadata failed: ${stderr.trim()}`)
  return JSON.parse(stdout).packages.map(({ name, manifest_path, targets, dependencies }) => ({
    name,
    folder: dirname(manifest_path).slice(root.length).replaceAll('\\', '/'),
    needs: dependencies.filter(({ path }) => path).map((dependency) => dependency.name),
    tests: targets.filter(({ kind }) => kind.includes('test')).map((target) => target.name),
  }))
}
