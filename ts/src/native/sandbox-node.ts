/** The sandbox in Node: a worker thread, so that the event loop goes on and a deadline can end it. */

import { readFile } from 'node:fs/promises'
import { createRequire } from 'node:module'
import { Worker } from 'node:worker_threads'
import type * as Sandbox from './sandbox.js'
import { renderOnce, type SandboxReply } from './sandbox.js'

/** What the worker runs: a script as text, so that bundlers and sources need no file for it. */
const SCRIPT = `const { parentPort, workerData } = require('node:worker_threads')
const { module, request } = workerData
parentPort.postMessage((${renderOnce.toString()})(module, request))`

/** A worker needs little beside the instance: this is for its JavaScript. */
const WORKER_LIMITS = { maxOldGenerationSizeMb: 128, maxYoungGenerationSizeMb: 16, stackSizeMb: 4 }

let compiled: Promise<WebAssembly.Module> | undefined

/** See `sandbox.ts`. */
export const renderInSandbox: typeof Sandbox.renderInSandbox = async (request) => {
  compiled ??= compile()
  const module = await compiled
  return new Promise((resolve) => {
    const worker = new Worker(SCRIPT, {
      eval: true,
      workerData: { module, request },
      resourceLimits: WORKER_LIMITS,
    })
    const end = (reply: SandboxReply) => {
      clearTimeout(timer)
      resolve(reply)
      void worker.terminate()
    }
    const late = `a template must render within ${request.timeoutMs} ms: got one that did not`
    const timer = setTimeout(() => end({ code: 'TIMEOUT', message: late }), request.timeoutMs)
    worker.once('message', end)
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
