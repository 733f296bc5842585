/**
 * `npm run pack -- [--release] [--published]`: packs what a user installs, into target/pack/tarballs.
 *
 * Two packages: `fulmar` (JavaScript, types, the WebAssembly modules) and the addon of this platform, as napi-rs lays
 * them out: the first names the second as an optional dependency, so that npm fetches only what fits the machine.
 * Packs what is built; `--release` builds a release first, and checks its sizes. `--published` checks them too, and
 * demands the addon of every platform of package.json in `addon/`.
 */

import {
  copyFileSync,
  cpSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs'
import { join } from 'node:path'
import { asProgram, must, Refusal, root, run, runTool } from './steps.mjs'

const STAGE = join(root, 'target', 'pack')
const TARBALLS = join(STAGE, 'tarballs')
const OPTIONS = ['--release', '--published']

/** Largest sizes in MB of what every build has, and of what a release has: a build for tests is larger. */
const SIZES_MAX = { JavaScript: 2.6 }
const RELEASE_SIZES_MAX = { addon: 26, 'wasm/fulmar_wasm_bg.wasm': 11.5, 'wasm/fulmar_sandbox.wasm': 1.7 }

asProgram(async () => {
  const options = process.argv.slice(2)
  const unknown = options.find((option) => !OPTIONS.includes(option))
  if (unknown) throw new Refusal(`option must be one of ${OPTIONS.join(', ')}: got ${unknown}`)
  const isRelease = options.includes('--release')
  if (isRelease) {
    await must('the build', run(process.execPath, ['scripts/build.mjs', '--release'], { echo: true }))
  }
  for (const needed of ['dist/index.js', 'addon/index.cjs', 'wasm/fulmar_wasm.js']) {
    if (!existsSync(join(root, needed))) throw new Refusal(`${needed} must be built first: npm run build`)
  }
  rmSync(STAGE, { recursive: true, force: true })
  mkdirSync(TARBALLS, { recursive: true })
  const platforms = await stagePlatforms(options.includes('--published'))
  const main = stageMain(platforms)
  checkSizes(main, platforms, options.length > 0)
  for (const folder of [main, ...platforms.map(({ folder }) => folder)]) await pack(folder)
  return 0
})

/** The folders that napi makes, with the addon in those whose addon was built. */
async function stagePlatforms(isAllNeeded) {
  const npm = join(STAGE, 'npm')
  mkdirSync(npm)
  await must(
    'napi create-npm-dirs',
    runTool('@napi-rs/cli/dist/cli.js', ['create-npm-dirs', '--npm-dir', npm]),
  )
  const platforms = []
  for (const platform of readdirSync(npm)) {
    const addon = join(root, 'addon', `fulmar.${platform}.node`)
    const folder = join(npm, platform)
    if (existsSync(addon)) {
      copyFileSync(addon, join(folder, `fulmar.${platform}.node`))
      copyFileSync(join(root, 'LICENSE'), join(folder, 'LICENSE'))
      platforms.push({ folder, addon, manifest: readJson(join(folder, 'package.json')) })
    } else if (isAllNeeded)
      throw new Refusal(`addon/ must hold an addon for every platform: ${platform} is missing`)
  }
  if (platforms.length === 0) throw new Refusal('addon/ must hold an addon for a platform of package.json')
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
    if (!existsSync(join(root, path))) throw new Refusal(`${path} must be there, as package.json names it`)
    cpSync(join(root, path), join(folder, path), { recursive: true })
  }
  writeFileSync(join(folder, 'package.json'), `${JSON.stringify(manifest, null, 2)}\n`)
  return folder
}

/** Refuses packages that have grown: a limit is raised on purpose, with a reason in the commit. */
function checkSizes(main, platforms, isRelease) {
  const sizes = [['JavaScript', sizeOf(join(main, 'dist'), /\.js$/)]]
  if (isRelease) {
    for (const { addon } of platforms) sizes.push(['addon', statSync(addon).size])
    for (const file of Object.keys(RELEASE_SIZES_MAX)) {
      if (file.endsWith('.wasm')) sizes.push([file, statSync(join(main, file)).size])
    }
  }
  for (const [what, bytes] of sizes) {
    const most = { ...SIZES_MAX, ...RELEASE_SIZES_MAX }[what]
    const megabytes = (bytes / 1e6).toFixed(2)
    process.stdout.write(`${what}: ${megabytes} of at most ${most} MB\n`)
    if (bytes > most * 1e6) throw new Refusal(`${what} must be at most ${most} MB: got ${megabytes} MB`)
  }
}

function sizeOf(folder, pattern) {
  const files = readdirSync(folder, { recursive: true }).filter((file) => pattern.test(file))
  return files.reduce((sum, file) => sum + statSync(join(folder, file)).size, 0)
}

async function pack(folder) {
  const args = ['pack', '--json', '--pack-destination', TARBALLS]
  const output = await must('npm pack', run('npm', args, { cwd: folder }))
  const [{ filename, size, entryCount }] = Object.values(JSON.parse(output.slice(output.search(/^[[{]/m))))
  process.stdout.write(`${filename}: ${entryCount} files, ${(size / 1e6).toFixed(2)} MB\n`)
}

function readJson(path) {
  return JSON.parse(readFileSync(path, 'utf8'))
}
