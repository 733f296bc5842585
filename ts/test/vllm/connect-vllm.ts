/** Fake vLLM servers and policies over them, closed after each test. */

import { afterEach } from 'vitest'
import { AsyncVLLM, type AsyncVLLMOptions } from '../../src/vllm/index.js'
import { FakeVllm, type FakeVllmOptions } from './fake-vllm.js'
import { TurningClock } from './turning-clock.js'

const open: (() => Promise<void>)[] = []
afterEach(async () => {
  for (const close of open.splice(0).reverse()) await close()
})

export async function serve(options: FakeVllmOptions = {}): Promise<FakeVllm> {
  const fake = await FakeVllm.start(options)
  open.push(() => fake.close())
  return fake
}

export async function connect(
  fakes: readonly FakeVllm[],
  options: AsyncVLLMOptions = {},
): Promise<AsyncVLLM> {
  const urls = fakes.map(({ url }) => url)
  const shared = { clock: new TurningClock(), backoffMs: 4, vocabSize: 23 }
  const policy = await AsyncVLLM.connect(urls, { ...shared, ...options })
  open.push(() => policy.close())
  return policy
}
