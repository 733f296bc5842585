/** A bundle as the default export of a worker in workerd, on a loopback port. */

import { spawn } from 'node:child_process'
import { createRequire } from 'node:module'
import { Refusal, root } from './steps.mjs'

const START_TIMEOUT_MS = 20_000

/** Serves the worker that examples/edge/workerd.capnp names. `post` resolves with the status and the JSON of an answer. */
export async function openWorkerd() {
  const args = ['serve', '--control-fd=3', `${root}examples/edge/workerd.capnp`]
  const { default: command } = createRequire(import.meta.url)('workerd')
  const child = spawn(command, args, { stdio: ['ignore', 'inherit', 'inherit', 'pipe'] })
  const port = await listening(child).catch((error) => {
    child.kill()
    throw error
  })
  const post = async (path, body) => {
    const response = await fetch(`http://127.0.0.1:${port}${path}`, { method: 'POST', body })
    return { status: response.status, body: await response.json() }
  }
  return { post, close: () => child.kill() }
}

/** Resolves with the port once workerd listens. */
function listening(child) {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(() => reject(new Refusal('workerd did not start in time')), START_TIMEOUT_MS)
    let events = ''
    child.stdio[3].setEncoding('utf8').on('data', (text) => {
      events += text
      const [, found] = /"event":"listen","socket":"http","port":(\d+)/.exec(events) ?? []
      if (found === undefined) return
      clearTimeout(timer)
      resolve(Number(found))
    })
    child.once('error', reject)
    child.once('close', (code) => reject(new Refusal(`workerd ended with exit status ${code}`)))
  })
}
