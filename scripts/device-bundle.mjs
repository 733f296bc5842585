/**
 * `node scripts/device-bundle.mjs`: makes `target/device/`, what a machine with a GPU needs to check and measure the kernels: see
 * docs/cuda.md. Wheels for its rivals are put into `target/device/wheels` by hand, and stay there.
 *
 * The kernels must have been compiled: cargo xtask kernels.
 */

import { chmodSync, copyFileSync, mkdirSync, readdirSync, readFileSync, statSync } from 'node:fs'
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'
import { kernelsIn } from './kernels.mjs'
import { asProgram, must, nativeTarget, Refusal, root, run } from './steps.mjs'

const BUNDLE = join(root, 'target/device')
const BYTES_MAX = 30e6

/** The newest C library that the program may ask for, as (major, minor): that of Debian 12. */
const GLIBC_MAX = [2, 36]

if (import.meta.url === pathToFileURL(process.argv[1] ?? '').href) asProgram(bundle)

async function bundle() {
  const args = ['build', '--release', '--quiet', '-p', 'fulmar-device']
  await must('the build of fulmar-device', run('cargo', args, { echo: true }))
  mkdirSync(join(BUNDLE, 'wheels'), { recursive: true })
  const files = {
    'fulmar-device': `target/${nativeTarget()}/release/fulmar-device`,
    'on-device.sh': 'scripts/on-device.sh',
    'rivals.py': 'benches/device/rivals.py',
  }
  for (const [name, from] of Object.entries(files)) copyFileSync(join(root, from), join(BUNDLE, name))
  chmodSync(join(BUNDLE, 'on-device.sh'), 0o755)
  const program = readFileSync(join(BUNDLE, 'fulmar-device'))
  if (kernelsIn(program) === undefined)
    throw new Refusal('fulmar-device must have kernels: cargo xtask kernels makes them')
  checkGlibc(program)
  const bytes = sizeOf(BUNDLE)
  if (bytes > BYTES_MAX)
    throw new Refusal(
      `target/device must be at most ${BYTES_MAX / 1e6} MB: got ${(bytes / 1e6).toFixed(1)} MB`,
    )
  process.stdout.write(
    `target/device: ${(bytes / 1e6).toFixed(1)} MB, glibc ${glibcOf(program).join('.')} or later\n`,
  )
  return 0
}

/** Returns the newest version of glibc that a program asks for, as [major, minor]. */
export function glibcOf(program) {
  const versions = [...program.toString('latin1').matchAll(/\bGLIBC_(\d+)\.(\d+)/g)]
  const numbers = versions.map(([, major, minor]) => [Number(major), Number(minor)])
  return numbers.sort((a, b) => b[0] - a[0] || b[1] - a[1])[0] ?? [0, 0]
}

/** Refuses a program that needs a newer glibc than {@link GLIBC_MAX}. */
export function checkGlibc(program) {
  const [major, minor] = glibcOf(program)
  if (major > GLIBC_MAX[0] || (major === GLIBC_MAX[0] && minor > GLIBC_MAX[1]))
    throw new Refusal(
      `fulmar-device must run with glibc ${GLIBC_MAX.join('.')}: it needs ${major}.${minor}; build it on Debian 12 or older`,
    )
}

function sizeOf(folder) {
  const files = readdirSync(folder, { recursive: true, withFileTypes: true }).filter((file) => file.isFile())
  return files.reduce((sum, file) => sum + statSync(join(file.parentPath, file.name)).size, 0)
}
