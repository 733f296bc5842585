/** The client's cost of a request to a vLLM server: {@link AsyncVLLM} against aiohttp, in processor time; goal 18. */

import { fileURLToPath } from 'node:url'
import { AsyncVLLM, type GenerateRequest } from 'fulmar/policy'
import { alternate, hand, median, type Report, ROOT, readOptions, type Sample, verdict } from './measure.js'
import { Peer, PYTHON_ENVIRONMENT } from './peer.js'
import { installTrl } from './trl.js'

const REQUESTS = 2000
const IN_FLIGHT = 64
const PROMPT_TOKENS = 256
const NEW_TOKENS = 64
const CPU_US_GOAL = 150
const RIVAL = fileURLToPath(new URL('benches/rival/aiohttp/completions.py', ROOT))

const options = readOptions({ rounds: 9 })
const prompt = Array.from({ length: PROMPT_TOKENS }, (_, at) => (at * 7919) % 49_152)
using server = new Peer('the server', process.execPath, [
  fileURLToPath(new URL('vllm-server.js', import.meta.url)),
])
const { url } = (await server.answer()) as { url: string }
const policy = await AsyncVLLM.connect([url])
try {
  const installed = options.rival ? installTrl() : { skipped: '--no-rival' }
  if ('skipped' in installed) hand(await measure(undefined, installed.skipped))
  else {
    using peer = new Peer('aiohttp', installed.python, [RIVAL, url], PYTHON_ENVIRONMENT)
    hand(await measure(peer, ''))
  }
} finally {
  await policy.close()
}

async function measure(peer: Peer | undefined, skipped: string): Promise<Report> {
  const started = peer && ((await peer.answer()) as { versions: Record<string, string> })
  const theirs = peer && { theirs: beside(() => askRival(peer)) }
  const contestants: Readonly<Record<string, () => Promise<Sample>>> = { ours: beside(askAll), ...theirs }
  const { of, disturbance } = await alternate(contestants, { ...options, warmup: 2 })
  const [ours, rival] = [of('ours'), peer && of('theirs')]
  return {
    setting: { requests: REQUESTS, inFlight: IN_FLIGHT, promptTokens: PROMPT_TOKENS, newTokens: NEW_TOKENS },
    checks: [
      `every request was answered with ${NEW_TOKENS} tokens and their log-probs, and the prompt that was sent`,
    ],
    figures: [
      {
        ...{ work: 'a completion, processor time', unit: 'us', ours: ours.warm },
        rival: rival ? { name: 'aiohttp', samples: rival.warm } : { skipped },
        cold: { ours: ours.cold, ...(rival && { rival: rival.cold }) },
      },
    ],
    notes: [
      `processor time of all threads a completion: ${verdict(median(ours.warm), CPU_US_GOAL, 'us')}`,
      'AsyncVLLM also says every sampling field, and checks ids, log-probs and the reason to end; aiohttp compares the prompt',
      disturbance,
    ],
    versions: started?.versions ?? {},
  }
}

/** A sample with the processor time of the server, so that it does not count as another program's. */
function beside(take: () => Promise<Sample>): () => Promise<Sample> {
  const serverMs = async () => ((await server.ask('time')) as { cpuMs: number }).cpuMs
  return async () => {
    const startMs = await serverMs()
    const { value, rivalCpuMs = 0 } = await take()
    return { value, rivalCpuMs: rivalCpuMs + (await serverMs()) - startMs }
  }
}

/** Microseconds of processor time a request, all threads together. */
async function askAll(): Promise<Sample> {
  const before = process.cpuUsage()
  let next = 0
  const worker = async () => {
    while (next < REQUESTS) {
      const { ids, logProbs } = await policy.generate(requestOf(next++))
      if (ids.length !== NEW_TOKENS || logProbs.length !== NEW_TOKENS)
        throw new Error(`an answer must have ${NEW_TOKENS} tokens: got ${ids.length}`)
    }
  }
  await Promise.all(Array.from({ length: IN_FLIGHT }, worker))
  const { user, system } = process.cpuUsage(before)
  return { value: (user + system) / REQUESTS }
}

async function askRival(peer: Peer): Promise<Sample> {
  const body = { model: 'fake', prompt, max_tokens: NEW_TOKENS, logprobs: 0, return_token_ids: true }
  const request = { kind: 'ask', body, requests: REQUESTS, in_flight: IN_FLIGHT }
  const { cpuMs, tokens } = (await peer.ask(JSON.stringify(request))) as { cpuMs: number; tokens: number }
  if (tokens !== REQUESTS * NEW_TOKENS)
    throw new Error(`aiohttp must get ${REQUESTS * NEW_TOKENS} tokens: got ${tokens}`)
  return { value: (1000 * cpuMs) / REQUESTS, rivalCpuMs: cpuMs }
}

function requestOf(index: number): GenerateRequest {
  const promptIds = Uint32Array.from(prompt)
  return { requestId: `request-${index}`, promptIds, seed: index, maxTokens: NEW_TOKENS, stopIds: [] }
}
