/** Virtual environments of rivals in Python, which the benches make themselves. */

import { spawnSync } from 'node:child_process'
import { existsSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { ROOT, say } from './measure.js'
import type { Skipped } from './peer.js'

/**
 * The Python of the virtual environment `.venv/NAME` with `benches/rival/NAME/requirements.txt`, made now if it is missing; or the reason why
 * it cannot be made. `size` tells what the download costs.
 */
export function installPython(name: string, size: string): { readonly python: string } | Skipped {
  const asked = spawnSync('python3', ['-c', 'import sys, venv; print(sys.version_info >= (3, 11))'])
  if (asked.status !== 0) return { skipped: 'python3 with its module venv is not installed' }
  if (asked.stdout.toString().trim() !== 'True') return { skipped: 'python3 is older than 3.11' }
  const venv = fileURLToPath(new URL(`.venv/${name}/`, ROOT))
  const requirements = fileURLToPath(new URL(`benches/rival/${name}/requirements.txt`, ROOT))
  const [python, stamp] = [join(venv, 'bin/python'), join(venv, 'requirements.txt')]
  const wanted = readFileSync(requirements, 'utf8')
  if (existsSync(stamp) && readFileSync(stamp, 'utf8') === wanted) return { python }
  say(`installing rivals in Python under .venv/${name} from PyPI: ${size} and some minutes, once`)
  const made = spawnSync('python3', ['-m', 'venv', venv])
  if (made.status !== 0) return { skipped: `python3 -m venv failed: ${lastLine(made.stderr)}` }
  const install = ['-m', 'pip', 'install', '--quiet', '--disable-pip-version-check', '-r', requirements]
  const installed = spawnSync(python, install, { stdio: ['ignore', 'inherit', 'pipe'] })
  if (installed.status !== 0) return { skipped: `pip could not install them: ${lastLine(installed.stderr)}` }
  writeFileSync(stamp, wanted)
  return { python }
}

function lastLine(text: Buffer): string {
  return text.toString().trim().split('\n').at(-1) ?? ''
}
