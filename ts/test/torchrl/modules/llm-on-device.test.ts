// A server that is started, asked and killed: a small program in place of vLLM.
import { existsSync } from 'node:fs'
import { createServer } from 'node:http'
import { fileURLToPath } from 'node:url'
import { describe, expect, it, onTestFinished } from 'vitest'
import { type Clock, ManualClock } from '../../../src/telemetry/index.js'
import { Tensor, TensorDict } from '../../../src/tensor/index.js'
import { LLMOnDevice, type LLMOnDeviceOptions } from '../../../src/torchrl/index.js'
import { portOf, started } from '../../fetch/fake-hub.js'
import { failing } from '../envs/chats.js'

const PROGRAM = fileURLToPath(new URL('small-vllm.mjs', import.meta.url))

/** A clock whose pauses end at the next turn of the event loop, and whose time limits never do. */
class PauseClock implements Clock {
  numPauses = 0

  nowMs(): number {
    return performance.now()
  }

  startTimer(delayMs: number, onDue: () => void): () => void {
    if (delayMs > 500) return () => {}
    this.numPauses += 1
    const timer = setImmediate(onDue)
    return () => clearImmediate(timer)
  }
}

/** A port that was free a moment ago. */
async function freePort(): Promise<number> {
  const server = createServer()
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  const port = portOf(server)
  await new Promise((resolve) => server.close(resolve))
  return port
}

async function start(mode = '', options: LLMOnDeviceOptions = {}) {
  const port = await freePort()
  const command = [process.execPath, PROGRAM, String(port), mode]
  const url = `http://127.0.0.1:${port}`
  const llm = await LLMOnDevice.start(command, {
    url,
    clock: new PauseClock(),
    startTimeoutMs: 500_000,
    ...options,
  })
  onTestFinished(() => llm.close())
  return llm
}

const workerIn = (log: string) => Number(/worker (\d+)/.exec(log)?.[1])
const isGone = (pid: number) =>
  expect.poll(() => existsSync(`/proc/${pid}/exe`), { timeout: 10_000 }).toBe(false)

describe('LLMOnDevice', () => {
  it('starts a server on its devices, waits for it and wraps it', async () => {
    const llm = await start('', { devices: [2, 0], bundleIndices: [1], env: { FULMAR_TEST: 'yes' } })
    const wrapper = llm.wrapper({ inputMode: 'tokens', generateKwargs: { maxNewTokens: 2 } })
    const prompt = Tensor.from(Uint32Array.of(1, 2))
    const dict = TensorDict.from({ tokens: TensorDict.from({ prompt }) })
    await wrapper.forward(dict)
    expect(Array.from(dict.tensor(['tokens', 'full']).data, Number)).toEqual([1, 2, 7, 7])
    await llm.close()
    const { exitCode, log } = await llm.ended
    expect(exitCode).toBeNull()
    expect(log).toMatch(/devices 2,0 bundles 1 extra yes/)
    await isGone(workerIn(log))
    await llm.close()
  })

  it('kills what a server started when the signal fires', async () => {
    const stop = new AbortController()
    const llm = await start('', { signal: stop.signal })
    stop.abort()
    const { log } = await llm.ended
    expect(workerIn(log)).toBeGreaterThan(0)
    await isGone(workerIn(log))
  })

  it('says why a server ended, and leaves nothing of it', async () => {
    const failure = await start('fails').catch((error) => error)
    expect(failure).toEqual(failing('UNAVAILABLE', /ended with code 3 \(.*no such model/s))
    await isGone(workerIn(failure.message))
  })

  it('gives up at its deadline, and kills the group', async () => {
    const clock = new ManualClock()
    let outcome: unknown
    const starting = start('unhealthy', { clock, startTimeoutMs: 60_000 }).catch((error) => {
      outcome = error
    })
    await expect
      .poll(
        () => {
          clock.advance(1_000)
          return outcome
        },
        { timeout: 20_000 },
      )
      .toEqual(failing('TIMEOUT', /health must answer within 60000 ms/))
    await starting
  })

  it('stops the wait when the signal fires', async () => {
    const stop = new AbortController()
    const clock = new PauseClock()
    const starting = start('unhealthy', { clock, signal: stop.signal }).catch((error) => error)
    await expect.poll(() => clock.numPauses, { timeout: 20_000 }).toBeGreaterThan(3)
    stop.abort()
    expect(await starting).toEqual(failing('ABORTED'))
  })

  it('refuses an address where another server answers', async () => {
    const other = await started(createServer((_, response) => void response.end()))
    await expect(start('', { url: `http://127.0.0.1:${portOf(other)}` })).rejects.toThrow(
      failing('INCOMPATIBLE', /answers already, with status 200/),
    )
  })

  it('says that a program cannot be started', async () => {
    const url = `http://127.0.0.1:${await freePort()}`
    const starting = LLMOnDevice.start(['/no/such/vllm'], {
      url,
      clock: new PauseClock(),
      startTimeoutMs: 500_000,
    })
    await expect(starting).rejects.toThrow(failing('UNAVAILABLE', /no\/such\/vllm/))
  })

  it('refuses bad arguments before it starts anything', async () => {
    const cases: [unknown, object, string, RegExp][] = [
      [[], {}, 'EMPTY', /command/],
      ['vllm serve', {}, 'MALFORMED', /command/],
      [[''], {}, 'MALFORMED', /command/],
      [['vllm', 7], {}, 'MALFORMED', /got 7/],
      [['vllm'], { devices: [0, 0] }, 'OUT_OF_RANGE', /devices .*: got 0/],
      [['vllm'], { devices: [-1] }, 'OUT_OF_RANGE', /devices/],
      [['vllm'], { devices: Array.from({ length: 1025 }, (_, at) => at) }, 'LIMIT_EXCEEDED', /1024/],
      [['vllm'], { bundleIndices: [0.5] }, 'OUT_OF_RANGE', /bundleIndices/],
      [['vllm'], { url: 'ftp://a' }, 'MALFORMED', /url/],
      [['vllm'], { startTimeoutMs: 0 }, 'OUT_OF_RANGE', /startTimeoutMs/],
      [['vllm'], { env: { A: 1 } }, 'MALFORMED', /env\.A/],
      [['vllm'], { connect: { client: {} } }, 'UNKNOWN_NAME', /connect\.client/],
      [['vllm'], { device: [0] }, 'UNKNOWN_NAME', /devices/],
    ]
    for (const [command, options, code, message] of cases)
      await expect(LLMOnDevice.start(command as never, options as never), String(message)).rejects.toThrow(
        failing(code, message),
      )
  })
})
