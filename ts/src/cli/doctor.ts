/** `fulmar doctor`: what is built, what this machine offers, and what is missing and why. */

import type { Gpu } from '../core/device.js'
import { type Backend, type CliIo, printJson, printTable } from './io.js'

/** Flags of the command. */
export interface DoctorFlags {
  readonly json?: boolean
  /** Looks at the build of the core that this process loads, and at nothing else. */
  readonly onlyLoaded?: boolean
}

/** Report on one build of the core. */
export type BackendReport =
  | {
      readonly isUsable: true
      readonly version: string
      readonly lanes: readonly string[]
      readonly threads: number
    }
  | { readonly isUsable: false; readonly reason: string }

/** Report on GPUs: those that decoders can use, or the reason why no decoder can use one. */
export type GpuReport =
  | { readonly isUsable: true; readonly gpus: readonly string[] }
  | { readonly isUsable: false; readonly reason: string }

/** Report on one way of keeping programs apart that a model wrote: usable, or the reason why not. */
export type SandboxReport =
  | { readonly isUsable: true }
  | { readonly isUsable: false; readonly reason: string }

/** The whole answer. */
export interface DoctorReport {
  readonly version: string
  /** Name and version, such as `Node 24.21.0`. */
  readonly runtime: string
  readonly platform: string
  readonly loaded: Backend | 'none'
  readonly native: BackendReport
  readonly wasm: BackendReport
  readonly gpu: GpuReport
  readonly sandbox: Readonly<Record<'bubblewrap' | 'pyodide', SandboxReport>>
}

/** Prints the report. Gives whether the core can be loaded at all. */
export async function doctor({ json = false, onlyLoaded = false }: DoctorFlags, io: CliIo): Promise<boolean> {
  const loaded = await loadedBackend()
  if (onlyLoaded) {
    printJson(loaded.report, io)
    return loaded.report.isUsable
  }
  const other = async (backend: Backend) =>
    loaded.name === backend ? loaded.report : await probed(backend, io)
  const report: DoctorReport = {
    version: io.version,
    runtime: runtimeOf(process.versions),
    platform: `${process.platform}-${process.arch}`,
    loaded: loaded.name,
    native: await other('native'),
    wasm: await other('wasm'),
    gpu: await gpuReport(),
    sandbox: { bubblewrap: await sandboxReport('bubblewrap'), pyodide: await sandboxReport('pyodide') },
  }
  if (json) printJson(report, io)
  else printTable(tableOf(report), io)
  return report.native.isUsable || report.wasm.isUsable
}

/** The build that this process loads; loading fails where it is not there. */
async function loadedBackend(): Promise<{ readonly name: Backend | 'none'; readonly report: BackendReport }> {
  try {
    const { describeBuild } = await import('../core/index.js')
    const { backend, version, lanes, threads } = describeBuild()
    return { name: backend, report: { isUsable: true, version, lanes, threads } }
  } catch (error) {
    return { name: 'none', report: { isUsable: false, reason: firstLine(error) } }
  }
}

async function probed(backend: Backend, io: CliIo): Promise<BackendReport> {
  const { stdout, stderr } = await io.probe(backend)
  const report = parseReport(stdout)
  return report ?? { isUsable: false, reason: stderr.trim().split('\n').at(-1) ?? 'it did not start' }
}

function parseReport(text: string): BackendReport | undefined {
  try {
    const report: unknown = JSON.parse(text)
    return isBackendReport(report) ? report : undefined
  } catch {
    return undefined
  }
}

function isBackendReport(value: unknown): value is BackendReport {
  if (typeof value !== 'object' || value === null || !('isUsable' in value)) return false
  return value.isUsable === true ? 'lanes' in value && Array.isArray(value.lanes) : 'reason' in value
}

/** Opens the GPUs that the loaded core finds. */
async function gpuReport(): Promise<GpuReport> {
  try {
    const { gpus, placeDevice } = await import('../core/index.js')
    for (const { ordinal } of gpus()) placeDevice(`cuda:${ordinal}`)
    return { isUsable: true, gpus: gpus().map(describeGpu) }
  } catch (error) {
    return { isUsable: false, reason: firstLine(error) }
  }
}

function describeGpu({ ordinal, name, memoryBytes, freeMemoryBytes, ...versions }: Gpu): string {
  const { computeCapability, driverVersion, code } = versions
  const [whole, free] = [memoryBytes, freeMemoryBytes ?? 0].map((bytes) => (bytes / 2 ** 30).toFixed(1))
  const runs = code === 'compute_90' ? 'PTX that its driver compiles at first use' : code
  return `cuda:${ordinal} ${name}, ${free} of ${whole} GiB free, capability ${computeCapability}, driver for CUDA ${driverVersion}, runs ${runs}`
}

async function sandboxReport(backend: 'bubblewrap' | 'pyodide'): Promise<SandboxReport> {
  try {
    const { Sandbox } = await import('../tools/index.js')
    const support = await Sandbox.support({ backend })
    return support.isUsable ? { isUsable: true } : support
  } catch (error) {
    return { isUsable: false, reason: firstLine(error) }
  }
}

function tableOf(report: DoctorReport): [string, string][] {
  const { version, runtime, platform, loaded, native, wasm, gpu, sandbox } = report
  return [
    ['fulmar', version],
    ['runtime', `${runtime} on ${platform}`],
    ['loaded core', loaded],
    ['native core', describeBackend(native)],
    ['wasm core', describeBackend(wasm)],
    ['gpu', gpu.isUsable ? `usable by decoders: ${gpu.gpus.join('; ')}` : `not usable: ${gpu.reason}`],
    ...Object.entries(sandbox).map(([name, report]): [string, string] => [
      `sandbox ${name}`,
      report.isUsable ? 'usable' : `not usable: ${report.reason}`,
    ]),
  ]
}

/** Bun and Deno also give the version of Node that they are compatible with. */
function runtimeOf({ bun, deno, node }: Readonly<Record<string, string | undefined>>): string {
  if (bun !== undefined) return `Bun ${bun}`
  return deno === undefined ? `Node ${node}` : `Deno ${deno}`
}

function describeBackend(report: BackendReport): string {
  if (!report.isUsable) return `not usable: ${report.reason}`
  return `usable, version ${report.version}, lanes ${report.lanes.join(' ')}, threads ${report.threads}`
}

function firstLine(error: unknown): string {
  const text = error instanceof Error ? error.message : String(error)
  return text.split('\n')[0] ?? text
}
