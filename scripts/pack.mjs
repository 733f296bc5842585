/**
 * `node scripts/pack.mjs [--check]`: packs what a user installs, into target/pack/tarballs.
 *
 * Two packages: `fulmar` (JavaScript, types, the WebAssembly module) and the addon of this platform, as napi-rs lays
 * them out: the first names the second as an optional dependency, so that npm fetches only what fits the machine.
 * `--check` installs both into an empty folder that has no compiler in its PATH, and runs programs there.
 */

import {
  copyFileSync,
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { delimiter, join } from 'node:path'
import { pathToFileURL } from 'node:url'
import { asProgram, must, Refusal, root, run, runTool } from './steps.mjs'

const STAGE = join(root, 'target', 'pack')
const TARBALLS = join(STAGE, 'tarballs')

asProgram(async () => {
  const [option, ...more] = process.argv.slice(2)
  if (more.length > 0 || (option !== undefined && option !== '--check')) {
    throw new Refusal(`option must be --check: got ${process.argv.slice(2).join(' ')}`)
  }
  const tarballs = await packAll()
  if (option === '--check') await check(tarballs)
  return 0
})

async function packAll() {
  for (const needed of ['dist/index.js', 'addon/index.cjs', 'LICENSE']) {
    if (!existsSync(join(root, needed))) throw new Refusal(`${needed} must be built first: npm run build`)
  }
  rmSync(STAGE, { recursive: true, force: true })
  mkdirSync(TARBALLS, { recursive: true })
  const platforms = await stagePlatforms()
  const main = stageMain(platforms)
  const tarballs = []
  for (const folder of [main, ...platforms.map(({ folder }) => folder)]) tarballs.push(await pack(folder))
  return tarballs
}

/** The folders that napi makes, with the addon in those whose addon was built. */
async function stagePlatforms() {
  const npm = join(STAGE, 'npm')
  mkdirSync(npm)
  await must(
    'napi create-npm-dirs',
    runTool('@napi-rs/cli/dist/cli.js', ['create-npm-dirs', '--npm-dir', npm]),
  )
  const platforms = []
  for (const platform of readdirSync(npm)) {
    const addon = `fulmar.${platform}.node`
    const folder = join(npm, platform)
    if (!existsSync(join(root, 'addon', addon))) continue
    copyFileSync(join(root, 'addon', addon), join(folder, addon))
    copyFileSync(join(root, 'LICENSE'), join(folder, 'LICENSE'))
    platforms.push({ folder, manifest: readJson(join(folder, 'package.json')) })
  }
  if (platforms.length === 0)
    throw new Refusal('addon/ must hold an addon for a platform of package.json: got none')
  return platforms
}

/** The main package: our manifest without what only development needs, with the platforms that were packed. */
function stageMain(platforms) {
  const { devDependencies, overrides, scripts, napi, ...manifest } = readJson(join(root, 'package.json'))
  manifest.optionalDependencies = Object.fromEntries(
    platforms.map((platform) => [platform.manifest.name, manifest.version]),
  )
  const folder = join(STAGE, 'fulmar')
  for (const path of manifest.files) {
    if (existsSync(join(root, path))) cpSync(join(root, path), join(folder, path), { recursive: true })
  }
  writeFileSync(join(folder, 'package.json'), `${JSON.stringify(manifest, null, 2)}\n`)
  return folder
}

async function pack(folder) {
  const args = ['pack', '--json', '--pack-destination', TARBALLS]
  const output = await must('npm pack', run('npm', args, { cwd: folder }))
  const [{ filename, size, entryCount }] = Object.values(JSON.parse(output.slice(output.search(/^[[{]/m))))
  process.stdout.write(`${filename}: ${entryCount} files, ${(size / 1e6).toFixed(2)} MB\n`)
  return join(TARBALLS, filename)
}

/** Installs the tarballs in an empty folder, and uses them there as a stranger would. */
async function check(tarballs) {
  const folder = mkdtempSync(join(tmpdir(), 'fulmar-packed-'))
  try {
    const env = { PATH: pathWithoutCompiler(folder) }
    writeFileSync(join(folder, 'package.json'), '{ "type": "module", "private": true }\n')
    const install = [
      'install',
      '--prefer-offline',
      '--no-audit',
      '--no-fund',
      '--ignore-scripts',
      ...tarballs,
    ]
    await must('npm install of the tarballs', run(join(folder, 'bin', 'npm'), install, { cwd: folder, env }))
    await runPrograms(folder, env)
    await typeCheck(folder)
    process.stdout.write('packed: installed and run without a compiler\n')
  } finally {
    rmSync(folder, { recursive: true, force: true })
  }
}

/** A PATH with `node`, `npm` and `sh` and nothing else. */
function pathWithoutCompiler(folder) {
  const bin = join(folder, 'bin')
  mkdirSync(bin)
  symlinkSync(process.execPath, join(bin, 'node'))
  for (const tool of ['npm', 'sh', 'env']) symlinkSync(find(tool), join(bin, tool))
  return bin
}

function find(tool) {
  const folder = process.env.PATH?.split(delimiter).find((candidate) => existsSync(join(candidate, tool)))
  if (!folder) throw new Refusal(`${tool} must be in PATH: got none`)
  return join(folder, tool)
}

const PROBE = `
import assert from 'node:assert/strict'
import { describeBuild, FulmarError, Rng } from 'fulmar'

assert.equal(describeBuild().backend, process.argv[2])
assert.equal(Rng.fromSeed(0).nextU32(), 0x6627e8d5)
assert.throws(() => Rng.fromSeed(-1), (error) => error instanceof FulmarError && error.code === 'OUT_OF_RANGE')
`

async function runPrograms(folder, env) {
  writeFileSync(join(folder, 'probe.js'), PROBE)
  writeFileSync(join(folder, 'readme.js'), await readmeProgram())
  const programs = [['probe.js', 'native'], ['readme.js']]
  if (existsSync(join(root, 'wasm', 'fulmar_wasm.js'))) {
    programs.push(['--conditions=fulmar-wasm', 'probe.js', 'wasm'], ['--conditions=fulmar-wasm', 'readme.js'])
  }
  programs.push(['node_modules/fulmar/dist/cli/main.js', '--help'])
  for (const args of programs) {
    await must(`node ${args.join(' ')}`, run(process.execPath, args, { cwd: folder, env }))
  }
}

/** The first TypeScript program of the README, as JavaScript. */
async function readmeProgram() {
  const path = join(root, 'README.md')
  const readme = existsSync(path) ? readFileSync(path, 'utf8') : ''
  const [, program] = /^```ts\n([\s\S]*?)^```$/m.exec(readme) ?? []
  if (!program) throw new Refusal('README.md must hold a program in a fence ```ts: got none')
  const { default: ts } = await import(
    pathToFileURL(join(root, 'node_modules/typescript/lib/typescript.js')).href
  )
  const { ES2022 } = ts.ScriptTarget
  return ts.transpileModule(program, { compilerOptions: { target: ES2022, module: ts.ModuleKind.ESNext } })
    .outputText
}

/** The types, read from the installed package by a strict consumer that checks libraries too. */
async function typeCheck(folder) {
  writeFileSync(
    join(folder, 'consumer.ts'),
    "import { Rng } from 'fulmar'\nexport const word: number = Rng.fromSeed(1).nextU32()\n",
  )
  const options = [
    '--noEmit',
    '--strict',
    '--module',
    'nodenext',
    '--target',
    'es2022',
    '--lib',
    'es2023,esnext.disposable',
  ]
  const types = ['--types', 'node', '--typeRoots', join(root, 'node_modules/@types')]
  await must(
    'tsc on a consumer',
    run(
      process.execPath,
      [join(root, 'node_modules/typescript/bin/tsc'), ...options, ...types, 'consumer.ts'],
      { cwd: folder },
    ),
  )
}

function readJson(path) {
  return JSON.parse(readFileSync(path, 'utf8'))
}
