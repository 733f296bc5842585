/** Rust programs that a bench starts, built before. */

import { spawnSync } from 'node:child_process'
import { fileURLToPath } from 'node:url'
import { ROOT, say } from './measure.js'
import { Peer, type Skipped } from './peer.js'

/** A program that cargo builds. */
export interface CargoProgram {
  readonly what: string
  /** Its Cargo.toml and the folder it is built in, from the root. */
  readonly manifest: string
  readonly target: string
  readonly program: string
  /** Of the compiler and of the program. */
  readonly environment?: Readonly<Record<string, string>>
}

/** The program, built and started. */
export function cargoPeer(
  { what, manifest, target, program, environment = {} }: CargoProgram,
  args: readonly string[],
): Peer | Skipped {
  say(`building ${what}`)
  const inRoot = (place: string) => fileURLToPath(new URL(place, ROOT))
  const where = ['--manifest-path', inRoot(manifest), '--target-dir', inRoot(target)]
  const env = { ...process.env, ...environment }
  const { status, stderr } = spawnSync('cargo', ['build', '--release', '--quiet', ...where], {
    encoding: 'utf8',
    env,
  })
  if (status !== 0) return { skipped: `cargo failed: ${stderr?.trim().split('\n')[0] ?? 'not installed'}` }
  return new Peer(what, inRoot(`${target}/release/${program}`), args, environment)
}

/** A program of benches/rust, built. */
export function rustProgram(program: string, args: readonly string[]): Peer | Skipped {
  const where = { manifest: 'benches/rust/Cargo.toml', target: 'target' }
  return cargoPeer({ what: 'ours in Rust', ...where, program }, args)
}
