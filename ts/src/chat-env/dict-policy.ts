/** Policies of dictionaries: over an engine of tokens, or a function. */

import { sizeOf } from '../chat/batch.js'
import { setEach, textsAt } from '../chat/dict-text.js'
import { ChatHistory, History, type Message, type RenderingOptions } from '../chat/index.js'
import { checkKnownKeys, FulmarError, Rng } from '../core/index.js'
import type { GenerateRequest, Policy } from '../policy/index.js'
import { Ragged, Tensor, type TensorDict } from '../tensor/index.js'
import type { NativeTokenizer } from '../tokenizer/index.js'
import { chatsAt } from './chat-env.js'
import type { DictPolicy, InputMode } from './env.js'
import { flagsAt } from './flag.js'

/** What a {@link replyPolicy} sees of an element: its messages, its text, or its ids. */
export type ElementPrompt = readonly Message[] | string | Uint32Array

/** Options of {@link replyPolicy}. */
export interface ReplyPolicyOptions {
  /** As the environment's. */
  readonly inputMode: InputMode
  /** What is said to a prompt; `index` counts the elements of the batch. */
  readonly reply: (prompt: ElementPrompt, index: number) => string | Promise<string>
  /** Encodes replies; needed for tokens. */
  readonly tokenizer?: NativeTokenizer
}

/**
 * A policy that says what a function says: for tests, for trying out an environment. Writes `response` and `full`.
 *
 * @throws {FulmarError} `INCOMPATIBLE` for tokens without a tokenizer; `UNKNOWN_NAME` for an unknown option.
 *
 * @example
 * ```ts
 * import { ChatEnv, NonTensorData, replyPolicy, TensorDict } from 'fulmar'
 * import assert from 'node:assert/strict'
 *
 * const policy = replyPolicy({ inputMode: 'history', reply: () => '2' })
 * const dict = new ChatEnv().reset(TensorDict.from({ query: new NonTensorData('1+1?') }, { batchSize: [1] }))
 * const said = (await policy(dict)).value(['history', 'response'])
 * assert.deepEqual(said, [[{ role: 'assistant', content: '2' }]])
 * ```
 */
export function replyPolicy(options: ReplyPolicyOptions): DictPolicy {
  checkKnownKeys('options', options, ['inputMode', 'reply', 'tokenizer'])
  const { inputMode, reply, tokenizer } = options
  if (inputMode === 'tokens' && tokenizer === undefined) {
    throw new FulmarError('INCOMPATIBLE', 'tokenizer must be given for tokens: got none')
  }
  return async (dict) => {
    const prompts = promptsAt(dict, inputMode)
    const replies = await Promise.all(prompts.map((prompt, at) => reply(prompt, at)))
    const root = dict.clone()
    if (inputMode === 'history')
      setChats(
        root,
        replies.map((content) => ({ role: 'assistant', content })),
      )
    else if (inputMode === 'text') setTexts(root, replies)
    else if (tokenizer) {
      const ids = replies.map((text) => tokenizer.encode(text, { addedTokens: true }).ids)
      setTokens(root, prompts as Uint32Array[], ids)
    }
    return root
  }
}

/** Options of {@link dictPolicy}. */
export interface DictPolicyOptions
  extends Pick<GenerateRequest, 'maxTokens'>,
    Partial<Pick<GenerateRequest, 'temperature' | 'topK' | 'topP' | 'stopIds' | 'signal'>> {
  /** What draws tokens. */
  readonly policy: Policy
  /** Encodes prompts and decodes responses. */
  readonly tokenizer: NativeTokenizer
  /** As the environment's. */
  readonly inputMode: InputMode
  /** How messages are rendered. @default the tokenizer's template */
  readonly template?: Omit<RenderingOptions, 'tokenizer'>
  /** Fixes every draw. A non-negative safe integer. @default 0 */
  readonly seed?: number
}

const KEYS = [
  'policy',
  'tokenizer',
  'inputMode',
  'template',
  'seed',
  'maxTokens',
  'temperature',
  'topK',
  'topP',
  'stopIds',
  'signal',
]

/**
 * A policy of dictionaries over one of tokens. Writes the action, `response` and `full` at `tokens`, the log-probabilities of the
 * response at `log_probs` and, for messages and texts, those forms too. Where `tokens.prompt` stands beside messages, as
 * `IncrementalTokenizer` leaves it, these ids are the prompt. Elements that are done get an empty response. Responses lose their stop
 * token as text, but not as ids.
 *
 * @throws {FulmarError} `UNKNOWN_NAME` for an unknown option; the policy, when called: what rendering, encoding and drawing say.
 *
 * @example
 * ```ts
 * import { CharTokenizer, ChatEnv, dictPolicy, NonTensorData, ScriptedPolicy, TensorDict } from 'fulmar'
 * import assert from 'node:assert/strict'
 *
 * using tokenizer = new CharTokenizer()
 * const template = { templateName: 'chatml_format' }
 * const stop = tokenizer.encode('<|im_end|>', { addedTokens: true }).ids[0] ?? 0
 * const scripted = new ScriptedPolicy({ reply: () => [...tokenizer.encode('Yo').ids, stop] })
 * const env = new ChatEnv({ inputMode: 'text', tokenizer, template })
 * const policy = dictPolicy({ policy: scripted, tokenizer, inputMode: 'text', maxTokens: 8, stopIds: [stop] })
 * const dict = await policy(env.reset(TensorDict.from({ query: new NonTensorData('Hi') }, { batchSize: [1] })))
 * assert.deepEqual(dict.value(['text', 'response']), ['Yo'])
 * assert.equal(dict.ragged(['log_probs', 'response']).row(0).shape[0], 3)
 * ```
 */
export function dictPolicy(options: DictPolicyOptions): DictPolicy {
  checkKnownKeys('options', options, KEYS)
  const { policy, tokenizer, inputMode, template = {}, seed = 0, stopIds = [], maxTokens } = options
  const { temperature, topK, topP, signal } = options
  const draws = Rng.fromSeed(seed).stream('dictPolicy')
  let numTurns = 0
  return async (dict) => {
    const root = dict.clone()
    const isDone = flagsAt(dict, 'done')
    const promptIds = await idsOf(dict)
    const turn = draws.fork(numTurns)
    const at = numTurns++
    const completions = await Promise.all(
      promptIds.map(async (ids, element) => {
        if (isDone[element]) return { ids: new Uint32Array(), logProbs: new Float32Array() }
        const drawn = await policy.generate({
          requestId: `turn-${at}-element-${element}`,
          promptIds: ids,
          seed: seedOf(turn, element),
          maxTokens,
          stopIds,
          ...(temperature !== undefined && { temperature }),
          ...(topK !== undefined && { topK }),
          ...(topP !== undefined && { topP }),
          ...(signal && { signal }),
        })
        return { ids: drawn.ids, logProbs: drawn.logProbs }
      }),
    )
    const drawnIds = completions.map(({ ids }) => ids)
    const texts = drawnIds.map((ids) =>
      tokenizer.decode(stopIds.includes(ids.at(-1) ?? -1) ? ids.slice(0, -1) : ids),
    )
    if (inputMode === 'history')
      setChats(
        root,
        texts.map((content) => ({ role: 'assistant', content })),
      )
    if (inputMode === 'text') setTexts(root, texts)
    if (root.batchSize.length !== 1) return root
    setTokens(root, promptIds, drawnIds)
    return root.set(
      ['log_probs', 'response'],
      Ragged.fromRows(completions.map(({ logProbs }) => Tensor.from(logProbs))),
    )
  }

  async function idsOf(dict: TensorDict): Promise<Uint32Array[]> {
    if (inputMode === 'tokens' || dict.has(['tokens', 'prompt']))
      return promptsAt(dict, 'tokens') as Uint32Array[]
    if (inputMode === 'text') {
      return textsAt(dict, ['text', 'prompt']).map(
        (text) => tokenizer.encode(text, { addedTokens: true }).ids,
      )
    }
    const prompt = History.fromChats(JSON.stringify(dict.value(['history', 'prompt'])))
    const rows = new ChatHistory({ prompt }).toTokens({ ...template, tokenizer }).rows('prompt')
    return rows.map((row) => Uint32Array.from(row.data, Number))
  }
}

/** The prompt of each element, the last batch dimension changing fastest. */
function promptsAt(dict: TensorDict, inputMode: InputMode): ElementPrompt[] {
  if (inputMode === 'history') return chatsAt(dict, ['history', 'prompt'])
  if (inputMode === 'text') return textsAt(dict, ['text', 'prompt'])
  const entry = dict.get(['tokens', 'prompt'])
  if (entry instanceof Ragged) {
    return Array.from({ length: entry.numRows }, (_, row) => Uint32Array.from(entry.row(row).data, Number))
  }
  const { data, shape } = dict.tensor(['tokens', 'prompt'])
  const width = shape.at(-1) ?? 0
  const flat = Uint32Array.from(data, Number)
  return Array.from({ length: sizeOf(dict.batchSize) }, (_, row) =>
    flat.slice(row * width, (row + 1) * width),
  )
}

function setChats(root: TensorDict, messages: readonly Message[]): void {
  const prompts = chatsAt(root, ['history', 'prompt'])
  setEach(
    root,
    ['history', 'response'],
    messages.map((message) => [message]),
  )
  setEach(
    root,
    ['history', 'full'],
    messages.map((message, at) => [...(prompts[at] ?? []), message]),
  )
}

function setTexts(root: TensorDict, texts: readonly string[]): void {
  const prompts = textsAt(root, ['text', 'prompt'])
  setEach(root, ['text', 'response'], texts)
  setEach(
    root,
    ['text', 'full'],
    texts.map((text, at) => `${prompts[at]}${text}`),
  )
}

function setTokens(
  root: TensorDict,
  prompts: readonly Uint32Array[],
  responses: readonly Uint32Array[],
): void {
  const rows = (all: readonly Uint32Array[]) =>
    Ragged.fromRows(all.map((ids) => Tensor.from(BigInt64Array.from(ids, BigInt))))
  root.set(['tokens', 'prompt'], rows(prompts))
  root.set(['tokens', 'response'], rows(responses))
  const full = prompts.map((prompt, at) => {
    const response = responses[at] ?? new Uint32Array()
    const ids = new Uint32Array(prompt.length + response.length)
    ids.set(prompt)
    ids.set(response, prompt.length)
    return ids
  })
  root.set(['tokens', 'full'], rows(full))
}

function seedOf(turn: Rng, element: number): number {
  using rng = turn.fork(element)
  return rng.nextU32()
}
