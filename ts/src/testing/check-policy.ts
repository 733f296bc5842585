/** Test suite for policies. */

import { checkGiven, checkKnownKeys, FulmarError } from '../core/index.js'
import type { Completion, GenerateRequest, Policy, StreamingPolicy, TokenScores } from '../policy/index.js'
import { promise } from './promise.js'

/** Options of {@link checkPolicy}. */
export interface CheckPolicyOptions {
  /**
   * Ids of the model, at least 10. Where it is given, an id past it must be refused.
   * @default 10, and ids past it are not tried
   */
  readonly vocabSize?: number
  /**
   * Tokens of the longest sequence. Where it is given, longer ones must be refused.
   * @default not tried
   */
  readonly contextLength?: number
  /**
   * Maximum difference between the log-probs of a completion and those of `score`.
   * @default 1e-4
   */
  readonly tolerance?: number
  /**
   * The text of an id, as the policy's tokenizer reads it where the ids around it do not matter. Where it is given, stop strings must
   * end completions.
   * @default not tried
   */
  readonly textOf?: (id: number) => string
}

const STOP = 9

/**
 * Rejects, with the broken rule, unless the policies that `make` returns obey the rules of {@link Policy}: they answer each request once,
 * with one log-prob of each kind per token; they end at a stop token, a stop string or the limit and return which; they draw the same for the
 * same seed, independent of concurrent requests; they read prompts at once and do not change them; they obey signals, return versions, score their own
 * tokens with the log-probs of sampling, and refuse bad requests alone. The parts of a streaming policy equal its whole completion. Features that
 * `capabilities` excludes are not tested. The vocabulary must contain the ids 0 to 9.
 *
 * @throws {FulmarError} `USER_CODE` with the broken rule; and the policy's own errors where it must not throw.
 *
 * @example
 * ```ts
 * import { checkPolicy, ScriptedPolicy } from 'fulmar/testing'
 * import assert from 'node:assert/strict'
 *
 * await checkPolicy(() => new ScriptedPolicy({ reply: ({ seed }) => [seed % 9, 9] }))
 * const wrong = new ScriptedPolicy({ reply: () => ({ ids: [1], logProbs: [0.5] }) })
 * await assert.rejects(checkPolicy(() => wrong), { code: 'USER_CODE', message: /log-probs must not be above 0/ })
 * ```
 */
export async function checkPolicy(make: () => Policy, options: CheckPolicyOptions = {}): Promise<void> {
  checkKnownKeys('options', options, ['vocabSize', 'contextLength', 'tolerance', 'textOf'])
  checkGiven('make', make)
  const { tolerance = 1e-4 } = options
  await checkAnswers(make())
  await checkEnds(make())
  await checkSeeds(make)
  await checkMemory(make)
  await checkGreedy(make())
  await checkAborts(make())
  await checkRefusals(make, options)
  await checkStopStrings(make(), options)
  await checkScores(make(), tolerance)
  await checkStreams(make())
}

const REQUEST: GenerateRequest = {
  requestId: 'a',
  promptIds: Uint32Array.of(1, 2, 3),
  seed: 7,
  maxTokens: 6,
  stopIds: [STOP],
}

async function checkAnswers(policy: Policy): Promise<void> {
  const promptIds = Uint32Array.of(1, 2, 3)
  const before = policy.version
  const completion = await policy.generate({ ...REQUEST, promptIds })
  checkCompletion(policy, REQUEST, completion)
  promise(promptIds.join() === '1,2,3', 'the prompt must stay as it was', [...promptIds])
  const { minPolicyVersion, maxPolicyVersion } = completion
  promise(
    before <= minPolicyVersion && minPolicyVersion <= maxPolicyVersion && maxPolicyVersion <= policy.version,
    'versions must be those of the weights during the call',
    [minPolicyVersion, maxPolicyVersion, policy.version],
  )
}

/** Checks the rules of every completion. */
function checkCompletion(policy: Policy, request: GenerateRequest, completion: Completion): void {
  const { requestId, ids, logProbs, sampledLogProbs, finishReason } = completion
  const { logProbs: tellsLogProbs = true, sampledLogProbs: tellsSampled = true } = policy.capabilities ?? {}
  promise(requestId === request.requestId, 'a completion must name its request', requestId)
  const lengths = [ids, logProbs, sampledLogProbs].map(({ length }) => length)
  promise(new Set(lengths).size === 1, 'each token must have one log-prob of each kind', lengths)
  promise(ids.length <= request.maxTokens, 'maxTokens must hold', ids.length)
  if (tellsLogProbs) promise(!logProbs.some(Number.isNaN), 'log-probs must be told')
  if (tellsSampled) promise(!sampledLogProbs.some(Number.isNaN), 'log-probs of the draw must be told')
  const wrong = [...logProbs, ...sampledLogProbs].find((value) => value > 0)
  promise(wrong === undefined, 'log-probs must not be above 0', wrong)
  if (finishReason === 'abort') return
  const stopped = request.stopIds.includes(ids.at(-1) ?? -1)
  promise(
    finishReason === (stopped ? 'stop' : 'length'),
    'a completion must have the reason why it ended',
    finishReason,
  )
  promise(ids.length > 0, 'a completion must hold a token')
  promise(stopped || ids.length === request.maxTokens, 'a completion must end at a stop id or at maxTokens', [
    ...ids,
  ])
  const early = ids.subarray(0, -1).find((id) => request.stopIds.includes(id))
  promise(early === undefined, 'nothing must follow a stop id', [...ids])
}

async function checkEnds(policy: Policy): Promise<void> {
  const requests = Array.from({ length: 16 }, (_, seed) => ({ ...REQUEST, requestId: `${seed}`, seed }))
  const some = [...requests, { ...REQUEST, requestId: 'one', maxTokens: 1 }]
  const completions = await Promise.all(some.map((request) => policy.generate(request)))
  for (const [index, request] of some.entries()) {
    const completion = completions[index]
    if (completion) checkCompletion(policy, request, completion)
  }
}

async function checkSeeds(make: () => Policy): Promise<void> {
  const [one, policy] = [make(), make()]
  if (policy.capabilities?.seeds === false) return
  const alone = await one.generate(REQUEST)
  const others = [1, 2, 3].map((seed) =>
    policy.generate({ ...REQUEST, requestId: `${seed}`, seed, promptIds: Uint32Array.of(4) }),
  )
  const [among] = await Promise.all([policy.generate(REQUEST), ...others])
  promise(equal(among, alone), 'a completion must not depend on concurrent requests', [
    textOf(among),
    textOf(alone),
  ])
  const again = await policy.generate(REQUEST)
  promise(equal(again, alone), 'a seed must fix the draws', [textOf(again), textOf(alone)])
}

/** Parts, and the whole that they make; a loop that is left. */
async function checkStreams(policy: Policy & Partial<StreamingPolicy>): Promise<void> {
  if (policy.stream === undefined) return
  const stream = policy.stream(REQUEST)
  const parts: Uint32Array[] = []
  for await (const { ids, logProbs, sampledLogProbs } of stream) {
    const lengths = [ids, logProbs, sampledLogProbs].map(({ length }) => length)
    promise(new Set(lengths).size === 1, 'each token of a part must have one log-prob of each kind', lengths)
    parts.push(ids)
  }
  const whole = await stream.result
  checkCompletion(policy, REQUEST, whole)
  const told = parts.flatMap((ids) => [...ids])
  promise(told.join() === whole.ids.join(), 'the parts of a stream must make its result', told)
  const left = policy.stream(REQUEST)
  for await (const _ of left) break
  const { ids } = await left.result
  promise(ids.length <= REQUEST.maxTokens, 'a stream that is left must end', ids.length)
}

/** Prompts whose memory the caller uses again at once, shares with other threads, or gives away. */
async function checkMemory(make: () => Policy): Promise<void> {
  const policy = make()
  const greedy = { ...REQUEST, temperature: 0 }
  const { ids: wanted } = await policy.generate(greedy)
  const length = REQUEST.promptIds.length
  const kinds: [string, Uint32Array<ArrayBufferLike>][] = [
    ['own', new Uint32Array(length)],
    // Pages without isolation have none.
    ['shared', new Uint32Array(new (globalThis.SharedArrayBuffer ?? ArrayBuffer)(length * 4))],
    ['resizable', new Uint32Array(Reflect.construct(ArrayBuffer, [length * 4, { maxByteLength: 64 }]))],
  ]
  for (const [kind, memory] of kinds) {
    memory.set(REQUEST.promptIds)
    const promptIds = memory as Uint32Array<ArrayBuffer>
    const drawn = policy.generate({ ...greedy, requestId: kind, promptIds })
    memory.fill(0)
    const { ids } = await drawn
    promise(ids.join() === wanted.join(), `a prompt in ${kind} memory must be read before the call returns`, [
      ...ids,
    ])
  }
  const given = REQUEST.promptIds.slice()
  const drawn = policy.generate({ ...greedy, requestId: 'given', promptIds: given })
  structuredClone(given, { transfer: [given.buffer] })
  promise((await drawn).ids.join() === wanted.join(), 'a prompt must be read before its memory is given away')
  await refusal(
    policy.generate({ ...greedy, requestId: 'gone', promptIds: given }),
    ['EMPTY', 'MALFORMED'],
    'promptIds',
  )
  const list = Array.from(REQUEST.promptIds) as unknown as Uint32Array
  await refusal(
    policy.generate({ ...greedy, requestId: 'list', promptIds: list }),
    ['MALFORMED'],
    'promptIds',
  )
}

async function checkGreedy(policy: Policy): Promise<void> {
  const greedy = { ...REQUEST, temperature: 0 }
  const [first, second] = await Promise.all([
    policy.generate(greedy),
    policy.generate({ ...greedy, requestId: 'b' }),
  ])
  checkCompletion(policy, greedy, first)
  promise(first.ids.join() === second.ids.join(), 'temperature 0 must take the likeliest tokens', [
    [...first.ids],
    [...second.ids],
  ])
}

async function checkAborts(policy: Policy): Promise<void> {
  const before = await policy.generate({ ...REQUEST, signal: AbortSignal.abort() })
  promise(before.finishReason === 'abort', 'a signal that has fired must abort', before.finishReason)
  checkCompletion(policy, REQUEST, before)
  const controller = new AbortController()
  const stopped = policy.generate({ ...REQUEST, requestId: 'stopped', signal: controller.signal })
  const whole = policy.generate({ ...REQUEST, requestId: 'whole' })
  controller.abort()
  checkCompletion(policy, { ...REQUEST, requestId: 'stopped' }, await stopped)
  const completion = await whole
  promise(completion.finishReason !== 'abort', 'a signal must stop its own request alone')
  checkCompletion(policy, { ...REQUEST, requestId: 'whole' }, completion)
}

async function checkRefusals(
  make: () => Policy,
  { vocabSize, contextLength }: CheckPolicyOptions,
): Promise<void> {
  const policy = make()
  const bad: [Partial<GenerateRequest>, string][] = [
    [{ promptIds: new Uint32Array(0) }, 'EMPTY'],
    [{ maxTokens: 0 }, 'OUT_OF_RANGE'],
    [{ seed: -1 }, 'OUT_OF_RANGE'],
    [{ temperature: Number.NaN }, 'OUT_OF_RANGE'],
    [{ topK: 1.5 }, 'OUT_OF_RANGE'],
    [{ topP: 0 }, 'OUT_OF_RANGE'],
    [{ stopStrings: [''] }, 'EMPTY'],
  ]
  if (vocabSize !== undefined) bad.push([{ promptIds: Uint32Array.of(vocabSize) }, 'OUT_OF_RANGE'])
  if (contextLength !== undefined) bad.push([{ maxTokens: contextLength }, 'LIMIT_EXCEEDED'])
  for (const [part, code] of bad) {
    const whole = policy.generate({ ...REQUEST, requestId: 'good' })
    await refusal(policy.generate({ ...REQUEST, requestId: 'bad', ...part }), [code], Object.keys(part)[0])
    promise((await whole).finishReason !== 'abort', 'a bad request must fail alone')
  }
  if (policy.score) {
    await refusal(policy.score({ requestId: 'bad', ids: new Uint32Array(0) }), ['EMPTY'], 'ids')
    const signal = AbortSignal.abort()
    await refusal(policy.score({ requestId: 'bad', ids: Uint32Array.of(1), signal }), ['ABORTED'], 'signal')
  }
}

async function checkStopStrings(policy: Policy, { textOf: read }: CheckPolicyOptions): Promise<void> {
  const greedy = { ...REQUEST, temperature: 0, stopIds: [] }
  if (policy.capabilities?.stopStrings === false) {
    await refusal(policy.generate({ ...greedy, stopStrings: ['a'] }), ['UNAVAILABLE'], 'stopStrings')
    return
  }
  if (read === undefined) return
  const whole = await policy.generate(greedy)
  const texts = Array.from(whole.ids, read)
  const stop = `${texts.at(-2)}${texts.at(-1)}`
  const length =
    texts.findIndex((_, at) =>
      texts
        .slice(0, at + 1)
        .join('')
        .includes(stop),
    ) + 1
  const [stopped, other] = await Promise.all([
    policy.generate({ ...greedy, requestId: 'stopped', stopStrings: ['never', stop] }),
    policy.generate({ ...greedy, requestId: 'other', stopStrings: ['never'] }),
  ])
  const rule = 'a completion must end with the token that completes a stop string'
  promise(stopped.ids.join() === whole.ids.subarray(0, length).join(), rule, [...stopped.ids])
  promise(stopped.finishReason === 'stop', `${rule}, with finishReason 'stop'`, stopped.finishReason)
  const { stoppedBy = stop } = stopped
  promise(stoppedBy === stop, 'a completion must name the stop string that ended it', stoppedBy)
  promise(other.ids.join() === whole.ids.join(), 'a stop string must stop its own request alone', [
    ...other.ids,
  ])
}

async function refusal(call: Promise<unknown>, codes: readonly string[], what = ''): Promise<void> {
  const got = await call.then(
    () => 'no error',
    (error: unknown) => (error instanceof FulmarError ? error.code : String(error)),
  )
  promise(codes.includes(got), `a bad ${what} must be refused with ${codes.join(' or ')}`, got)
}

async function checkScores(policy: Policy, tolerance: number): Promise<void> {
  if (!policy.score) return
  const { logProbs: tells = true } = policy.capabilities ?? {}
  const drawn = await policy.generate(REQUEST)
  const ids = Uint32Array.of(...REQUEST.promptIds, ...drawn.ids)
  const scores = await policy.score({ requestId: 'score', ids })
  checkScored(scores, ids.length)
  if (!tells) return
  const start = REQUEST.promptIds.length
  const apart = drawn.logProbs.map((value, at) =>
    Math.abs(value - (scores.logProbs[start + at] ?? Number.NaN)),
  )
  promise(
    apart.every((distance) => distance <= tolerance),
    'what was drawn must be scored as it was drawn',
    [...apart],
  )
}

function checkScored({ requestId, logProbs }: TokenScores, length: number): void {
  promise(requestId === 'score', 'scores must name their request', requestId)
  promise(logProbs.length === length, 'each token must be scored', logProbs.length)
  promise(Number.isNaN(logProbs[0]), 'the first token follows none: its log-prob must be NaN', logProbs[0])
  const wrong = logProbs.subarray(1).find((value) => !(value <= 0))
  promise(wrong === undefined, 'log-probs must not be above 0', wrong)
}

function equal(left: Completion, right: Completion): boolean {
  return textOf(left) === textOf(right)
}

function textOf({ ids, logProbs, sampledLogProbs, finishReason }: Completion): string {
  return JSON.stringify([[...ids], [...logProbs], [...sampledLogProbs], finishReason])
}
