/** Sandbox in Node: a worker thread, so that the event loop stays free and a deadline can terminate it. */

import { readFile } from 'node:fs/promises'
import { createRequire } from 'node:module'
import { availableParallelism } from 'node:os'
import { Worker } from 'node:worker_threads'
import type * as Sandbox from './sandbox.js'
import { renderOnce, type SandboxReply, type SandboxRequest } from './sandbox.js'
import { jobQueue } from './sandbox-queue.js'

/** Script of the worker as text, so that bundlers need no file for it. */
const SCRIPT = `const { parentPort, workerData } = require('node:worker_threads')
parentPort.postMessage('started')
parentPort.postMessage((${renderOnce.toString()})(workerData.module, workerData.request))`

/** Memory for the JavaScript of a worker, which needs little in addition to the instance. */
const WORKER_LIMITS = { maxOldGenerationSizeMb: 128, maxYoungGenerationSizeMb: 16, stackSizeMb: 4 }

/** Most templates that wait for a worker; one more is refused. */
const WAITING_MAX = 1024

/** Most milliseconds until a worker starts, which the template does not cause. */
const START_MS_MAX = 30_000

const queue = jobQueue({ runningMax: availableParallelism(), waitingMax: WAITING_MAX })

let compiled: Promise<WebAssembly.Module> | undefined

/** See `sandbox.ts`. */
export const renderInSandbox: typeof Sandbox.renderInSandbox = async (request) => {
  compiled ??= compile()
  const module = await compiled
  return queue(() => renderInWorker(module, request))
}

/** Renders in a worker of its own. The deadline counts from the start of the rendering. */
function renderInWorker(module: WebAssembly.Module, request: SandboxRequest): Promise<SandboxReply> {
  return new Promise((resolve) => {
    const worker = new Worker(SCRIPT, {
      eval: true,
      workerData: { module, request },
      resourceLimits: WORKER_LIMITS,
    })
    const end = (reply: SandboxReply) => {
      clearTimeout(timer)
      worker.removeAllListeners()
      // Errors of the worker after its reply are ignored.
      worker.on('error', () => undefined)
      // The next worker starts once this one is gone, so that there are never more than the queue allows.
      void worker.terminate().finally(() => resolve(reply))
    }
    const deadline = (ms: number, message: string) => setTimeout(() => end({ code: 'TIMEOUT', message }), ms)
    let timer = deadline(START_MS_MAX, `a worker must start within ${START_MS_MAX} ms, this one did not`)
    worker.on('message', (message: 'started' | SandboxReply) => {
      if (message !== 'started') return end(message)
      clearTimeout(timer)
      const { timeoutMs } = request
      timer = deadline(timeoutMs, `a template must render within ${timeoutMs} ms, this one did not`)
    })
    worker.once('error', (error) => end({ code: 'LIMIT_EXCEEDED', message: error.message }))
    worker.once('exit', () => end({ code: 'LIMIT_EXCEEDED', message: 'the worker must answer: got its end' }))
  })
}

async function compile(): Promise<WebAssembly.Module> {
  try {
    return await WebAssembly.compile(
      await readFile(createRequire(import.meta.url).resolve('#sandbox-binary')),
    )
  } catch (cause) {
    compiled = undefined
    const remedy = 'run npm run build with a WebAssembly toolchain'
    const error = new Error(`the sandbox module must be there: it could not be read (${remedy})`, { cause })
    throw Object.assign(error, { code: 'UNAVAILABLE' })
  }
}
