import { EventEmitter } from 'node:events'
import { afterAll, describe, expect, it, vi } from 'vitest'

interface Made {
  readonly resourceLimits?: {
    readonly maxOldGenerationSizeMb?: number
    readonly maxYoungGenerationSizeMb?: number
    readonly stackSizeMb?: number
  }
}

const made: Made[] = []
const compiled = {} as WebAssembly.Module

vi.mock('node:worker_threads', () => ({
  Worker: class extends EventEmitter {
    constructor(_: string, options: Made) {
      super()
      made.push(options)
      queueMicrotask(() => {
        this.emit('message', 'started')
        this.emit('message', { text: 'done' })
      })
    }
    terminate(): Promise<number> {
      return Promise.resolve(0)
    }
  },
}))
vi.mock('node:module', () => ({ createRequire: () => ({ resolve: () => 'sandbox.wasm' }) }))
vi.mock('node:fs/promises', () => ({ readFile: () => Promise.resolve(new Uint8Array()) }))
vi.spyOn(WebAssembly, 'compile').mockResolvedValue(compiled)

describe('the worker of the sandbox', () => {
  afterAll(() => vi.restoreAllMocks())

  it('has limits of its own', async () => {
    // Test files share their modules: the query asks for one of this test's own, over the worker above.
    const own = '../../src/native/sandbox-node.js?own'
    const { renderInSandbox } = (await import(own)) as typeof import('../../src/native/sandbox-node.js')
    const request = {
      source: '',
      input: '{}',
      steps: 1,
      outputBytes: 1,
      memoryBytes: 2 ** 23,
      timeoutMs: 100,
    }
    expect(await renderInSandbox(request)).toEqual({ text: 'done' })
    const limits = made[0]?.resourceLimits
    expect(limits?.maxOldGenerationSizeMb).toBeLessThanOrEqual(128)
    expect(limits?.maxYoungGenerationSizeMb).toBeLessThanOrEqual(16)
    expect(limits?.stackSizeMb).toBeLessThanOrEqual(4)
  })
})
