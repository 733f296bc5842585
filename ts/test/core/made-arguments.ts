/** Arguments for calls of which only their types are known, and instances for methods. */

import { Conversation, createRenderer } from '../../src/chat/index.js'
import { ParkingPolicy } from '../../src/collect/index.js'
import { Decoder, Engine } from '../../src/model/index.js'
import { fetchClient } from '../../src/native/index.js'
import { DecoderPolicy } from '../../src/policy/index.js'
import { LazyTensorStorage, RateLimiter, ReplayBuffer } from '../../src/replay/index.js'
import { Rollouter, TokenEnv } from '../../src/rollout/index.js'
import { sumDigits } from '../../src/task/index.js'
import { Tensor, TensorDict } from '../../src/tensor/index.js'
import { ScriptedPolicy } from '../../src/testing/index.js'
import { CharTokenizer } from '../../src/tokenizer/index.js'
import {
  ChatHistory,
  History,
  LLMWrapperBase,
  LogProbs,
  Masks,
  Text,
  Tokens,
} from '../../src/torchrl/index.js'
import { AsyncVLLM } from '../../src/vllm/index.js'
import { TINY } from '../model/tiny.js'

const world = new Map<string, unknown>()

function once<T>(name: string, make: () => T): () => T {
  return () => {
    if (!world.has(name)) world.set(name, make())
    return world.get(name) as T
  }
}

const chat = [{ role: 'user', content: 'Hi' }]
const tokenizer = once('tokenizer', () => new CharTokenizer())
const renderer = once('renderer', () => createRenderer(tokenizer(), { name: 'chatml' }))
const decoder = once('decoder', () =>
  Decoder.fromSeed({ ...TINY, vocab_size: tokenizer().vocabSize }, { seed: 1 }),
)
const policy = once('policy', () => new DecoderPolicy(decoder()))
const task = once('task', () => sumDigits())
const rollouter = once(
  'rollouter',
  () => new Rollouter({ policy: policy(), task: task(), renderer: renderer(), maxTokens: 4 }),
)
const buffer = once('buffer', () => new ReplayBuffer({ storage: new LazyTensorStorage(4) }))
const history = once('history', () => History.fromChats(chat))
const tensors = () => ({ prompt: Tensor.from([1, 2]) })
const messageEnv = () => ({
  init: () => ({ initPromptMessages: chat }),
  step: () => ({ done: true }),
  close: () => undefined,
})
const vllm = once('vllm', () => {
  const answer = async (url: string, { body = '{}' }: { body?: string }) => {
    if (url.endsWith('/v1/models')) return Response.json({ data: [{ id: 'tiny', max_model_len: 64 }] })
    const { prompt, request_id, prompt_logprobs } = JSON.parse(body)
    const logprobs = { token_logprobs: [-0.5] }
    const choice = {
      ...{ token_ids: [7], prompt_token_ids: prompt, logprobs, finish_reason: 'length' },
      ...(prompt_logprobs !== undefined && {
        prompt_logprobs: prompt.map((id: number, at: number) => (at > 0 ? { [id]: { logprob: -1 } } : null)),
      }),
    }
    return Response.json({ id: `cmpl-${request_id}`, choices: [choice] })
  }
  return AsyncVLLM.connect(['http://127.0.0.1:1'], { client: fetchClient(answer as never) })
})
const rendered = () => renderer().render(chat)
const conversation = once('conversation', () => {
  const made = new Conversation(renderer())
  made.start(chat)
  return made
})

/** By the type as TypeScript prints it. */
const VALUES: Readonly<Record<string, () => unknown>> = {
  number: () => 1,
  string: () => 'x',
  boolean: () => true,
  Decoder: decoder,
  Renderer: renderer,
  NativeTokenizer: tokenizer,
  'TensorDict<object>': () => TensorDict.from({}),
  'Task<Sample>': task,
  Rendered: rendered,
  Prompt: () => ({ ids: Uint32Array.of(1), seed: 0 }),
  'readonly Prompt[]': () => [{ ids: Uint32Array.of(1), seed: 0 }],
  IfEvalInstructions: () => ({ instructionIdList: [], kwargs: [] }),
  RolloutTurnId: () => ({ groupId: 0, rolloutId: 0, turnId: 0 }),
  EncodingBatch: () => ({ ids: new Uint32Array(), rows: Uint32Array.of(0) }),
  ReplayBufferToken: () => ({ kind: 'ReplayBuffer', id: '0', sampler: 'random' }),
  'readonly Message[]': () => chat,
  'JsonList<Message>': () => chat,
  'string | readonly string[]': () => 'x',
  'Tensor<keyof TypedArrays>': () => Tensor.zeros('f32', [1]),
  'Uint32Array<ArrayBufferLike>': () => Uint32Array.of(1),
  'Uint8Array<ArrayBufferLike>': () => Uint8Array.of(1),
  'Float32Array<ArrayBufferLike>': () => Float32Array.of(1),
  'ArrayLike<number>': () => [1],
}

/** A row that every task over rows can read. */
const ROW = {
  ...{ question: 'q', answer: '#### 1', problem: 'p', solution: '\\boxed{1}', query: 'q', prompt: 'p' },
  ...{ key: 1, instruction_id_list: [], kwargs: [], target: 1, nums: [1] },
}

/** A value of a type; `undefined` where none is known, which is fine as long as options are looked at first. */
export function madeValue(type: string, name: string): unknown {
  const make = VALUES[type]
  if (make) return make()
  if (name === 'dataset') return [ROW]
  if (type.startsWith('"')) return JSON.parse(type.split(' | ')[0] ?? '""')
  if (type.startsWith('readonly ') || type.endsWith('[]')) return []
  return undefined
}

const INSTANCES: Readonly<Record<string, () => unknown>> = {
  AsyncVLLM: vllm,
  CharTokenizer: tokenizer,
  ChatHistory: () => new ChatHistory({ full: history() }),
  Conversation: conversation,
  Decoder: decoder,
  DecoderPolicy: policy,
  Engine: once('engine', () => new Engine(decoder())),
  HERReplayBuffer: buffer,
  History: history,
  LLMWrapperBase: once('wrapper', () => new LLMWrapperBase(policy(), { tokenizer: tokenizer() })),
  LogProbs: () => new LogProbs(tensors()),
  Masks: () => new Masks({ allAttentionMask: Tensor.from([1], { dtype: 'bool' }) }),
  ParkingPolicy: () => new ParkingPolicy(policy()),
  RateLimiter: once('limiter', () => new RateLimiter({ kind: 'minSize', minSize: 1 } as never)),
  Rollouter: rollouter,
  ScriptedPolicy: () => new ScriptedPolicy({ reply: () => [1] }),
  Text: () => new Text({ prompt: 'x' }),
  Tensor: () => Tensor.from([1, 2]),
  TensorDict: () => TensorDict.from({ x: Tensor.from([1]) }, { batchSize: [1] }),
  TokenEnv: () => new TokenEnv({ messageEnv: messageEnv(), renderer: renderer() }),
  Tokens: () => new Tokens({ prompt: Tensor.from([1], { dtype: 'i64' }) }),
}

/** An object of a class, for its methods. */
export async function instanceOf(owner: string): Promise<object | undefined> {
  return (await INSTANCES[owner]?.()) as object | undefined
}

/** Frees what was made. */
export async function closeWorld(): Promise<void> {
  for (const made of [...world.values()].reverse()) {
    const one = await made
    if (typeof one !== 'object' || one === null) continue
    if (Symbol.dispose in one) (one as Disposable)[Symbol.dispose]()
    else if ('close' in one && typeof one.close === 'function') await one.close()
  }
  world.clear()
}
