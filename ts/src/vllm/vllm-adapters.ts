/** LoRA adapters of running servers: loaded under names of their own, served together, unloaded after their last request. */

import { FulmarError } from '../core/index.js'
import type { ServedModel } from './vllm-protocol.js'
import type { Servers } from './vllm-servers.js'

/** A model that requests name: the base model of the servers, or an adapter. */
export interface NamedModel extends ServedModel {
  readonly contextLength: number | undefined
}

/** A named model while requests use it. */
export class InUse {
  readonly model: NamedModel
  /** Policy version of the servers when another model was served instead; infinite for the one served. */
  endVersion = Number.POSITIVE_INFINITY
  #numRequests = 0
  #onUnused: (() => void) | undefined

  constructor(model: NamedModel) {
    this.model = model
  }

  enter(): void {
    this.#numRequests += 1
  }

  leave(): void {
    this.#numRequests -= 1
    this.#endIfUnused()
  }

  /** Calls `onUnused` once no request uses the model. */
  whenUnused(onUnused: () => void): void {
    this.#onUnused = onUnused
    this.#endIfUnused()
  }

  #endIfUnused(): void {
    if (this.#numRequests > 0) return
    this.#onUnused?.()
    this.#onUnused = undefined
  }
}

/** An adapter that servers have loaded. */
export interface LoadedAdapter {
  readonly name: string
  readonly version: number
  /** The servers. */
  readonly targets: readonly number[]
}

/** The model before a commit. */
interface Previous {
  readonly use: InUse
  readonly versions: readonly number[]
  /** Servers that the commit took out, as they lack the adapter. */
  readonly takenOut: readonly number[]
  /** True if the model is an adapter that was staged here, so that it is unloaded. */
  readonly isOwn: boolean
}

/** Adapters of the servers of one policy, in the phases of a {@link WeightReceiver}. */
export class Adapters {
  readonly #servers: Servers
  readonly #name: string
  #use: InUse
  #isOwn = false
  #staged: LoadedAdapter | undefined
  #previous: Previous | undefined

  /** `name` begins the names of adapters. */
  constructor(servers: Servers, name: string, model: NamedModel) {
    this.#servers = servers
    this.#name = name
    this.#use = new InUse(model)
  }

  /** The model that requests name now. */
  get served(): InUse {
    return this.#use
  }

  /** Loads an adapter on all servers in use, which keep serving what they serve. @throws {FulmarError} `UNAVAILABLE` if all are out. */
  async load(name: string, path: string, version: number): Promise<LoadedAdapter> {
    const { serving } = this.#servers.router
    const targets = [...serving.keys()].filter((target) => serving[target])
    if (targets.length === 0)
      throw new FulmarError('UNAVAILABLE', 'a server must be available to load an adapter: all are taken out')
    const body = { lora_name: name, lora_path: path }
    const ended = await Promise.allSettled(
      targets.map((target) => this.#servers.control(target, 'POST', '/v1/load_lora_adapter', { body })),
    )
    const loaded = {
      name,
      version,
      targets: targets.filter((_, index) => ended[index]?.status === 'fulfilled'),
    }
    const failed = ended.find((one) => one.status === 'rejected')
    if (failed === undefined) return loaded
    this.#unload(loaded)
    throw failed.reason
  }

  /** Names an adapter in requests from now on. Servers without it are taken out. */
  serve({ name, version, targets }: LoadedAdapter, { isOwn }: { readonly isOwn: boolean }): Previous {
    const { versions, router } = this.#servers
    const previous = { use: this.#use, versions, isOwn: this.#isOwn }
    const lacking = [...versions.keys()].filter((target) => !targets.includes(target))
    const takenOut = lacking.filter((target) => router.serving[target])
    this.#use.endVersion = Math.max(...versions)
    this.#use = new InUse({ ...this.#use.model, model: name })
    this.#isOwn = isOwn
    for (const target of targets) this.#servers.setVersion(target, version)
    for (const target of lacking) this.#servers.quarantine(target)
    return { ...previous, takenOut }
  }

  /** Loads an adapter under a name that the servers have not seen. */
  async stage(path: string, version: number, signal: AbortSignal): Promise<void> {
    const loaded = await this.load(`${this.#servers.wireId(`${this.#name}-v${version}`)}`, path, version)
    if (signal.aborted) {
      this.#unload(loaded)
      throw new FulmarError('ABORTED', 'signal must not fire during the call: it did')
    }
    if (this.#staged) this.#unload(this.#staged)
    this.#staged = loaded
  }

  /** Serves the staged adapter. @throws {FulmarError} `CLOSED` if nothing of this version was staged. */
  commit(version: number): void {
    const staged = this.#staged
    if (staged === undefined && this.#previous && this.#servers.versions.includes(version)) return
    if (staged?.version !== version) {
      const got = staged === undefined ? 'none' : `version ${staged.version}`
      throw new FulmarError('CLOSED', `an adapter of version ${version} must be staged: got ${got}`)
    }
    this.settle()
    this.#staged = undefined
    this.#previous = this.serve(staged, { isOwn: true })
  }

  /** Serves what was served before the commit, and unloads what was staged. */
  rollback(): void {
    if (this.#staged) this.#unload(this.#staged)
    this.#staged = undefined
    const previous = this.#previous
    if (previous === undefined) return
    this.#retire(this.#use)
    this.#use = previous.use
    this.#use.endVersion = Number.POSITIVE_INFINITY
    this.#isOwn = previous.isOwn
    for (const [target, version] of previous.versions.entries()) this.#servers.setVersion(target, version)
    for (const target of previous.takenOut) this.#servers.readmit(target)
    this.#previous = undefined
  }

  /** Unloads the previous adapter after its last request. */
  settle(): void {
    if (this.#previous?.isOwn) this.#retire(this.#previous.use)
    this.#previous = undefined
  }

  #retire(use: InUse): void {
    const targets = [...this.#servers.versions.keys()]
    use.whenUnused(() => this.#unload({ name: use.model.model, targets }))
  }

  /** Unloads an adapter without waiting: one that a server keeps costs memory there, and no result. */
  #unload({ name, targets }: Pick<LoadedAdapter, 'name' | 'targets'>): void {
    const body = { lora_name: name }
    for (const target of targets)
      this.#servers
        .control(target, 'POST', '/v1/unload_lora_adapter', { body, maxAttempts: 1 })
        .catch(() => {})
  }
}
