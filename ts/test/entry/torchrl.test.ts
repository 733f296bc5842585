/** Types of `fulmar/torchrl`: environments, wrappers and containers over dictionaries. */

import { expectTypeOf, test } from 'vitest'
import type { Message } from '../../src/chat/index.js'
import { Categorical, Composite } from '../../src/entry/spec.js'
import type { Task } from '../../src/entry/task.js'
import {
  ChatEnv,
  CompositeSpec,
  chatTask,
  DatasetChatEnv,
  type DictPolicy,
  DiscreteTensorSpec,
  type EnvBase,
  type EnvTransform,
  type GSM8KEnv,
  type History,
  type InputMode,
  LLMCollector,
  type LLMCollectorBatch,
  type LLMWrapperBase,
  lossBatch,
  messageEnvOf,
  replyPolicy,
  rollout,
  type StepCounter,
  type TaskChatEnv,
  Text,
  type Tokens,
  type TransformedEnv,
  type TransformersWrapper,
  type vLLMWrapper,
} from '../../src/entry/torchrl.js'
import type { MessageEnv } from '../../src/env/index.js'
import type { LossBatch } from '../../src/objective/index.js'
import type { DecoderPolicy } from '../../src/policy/index.js'
import type { LazyStack, Tensor, TensorDict } from '../../src/tensor/index.js'
import type { AsyncVLLM } from '../../src/vllm/index.js'

interface Colour {
  readonly colour: string
}

test('environments share one interface, and a chat steps without a wait', () => {
  expectTypeOf<ChatEnv>().toExtend<EnvBase>()
  expectTypeOf<TransformedEnv>().toExtend<EnvBase>()
  expectTypeOf<GSM8KEnv>().toExtend<TransformedEnv>()
  expectTypeOf<ChatEnv['step']>().returns.toEqualTypeOf<TensorDict>()
  expectTypeOf<EnvBase['step']>().returns.toEqualTypeOf<TensorDict | Promise<TensorDict>>()
  expectTypeOf<StepCounter>().toExtend<EnvTransform>()
  expectTypeOf(rollout).returns.resolves.toEqualTypeOf<LazyStack>()
  expectTypeOf<InputMode>().toEqualTypeOf<'history' | 'text' | 'tokens'>()
})

test('rows of a dataset and samples of a task keep their type', () => {
  const dataset = (items: readonly Colour[]) =>
    new DatasetChatEnv({
      dataset: items,
      collate: (row) => {
        expectTypeOf(row).toEqualTypeOf<Colour>()
        return { query: row.colour }
      },
    })
  expectTypeOf(dataset).returns.toEqualTypeOf<DatasetChatEnv<Colour>>()
  const env = (task: Task<Colour>) => ChatEnv.of(task)
  expectTypeOf(env).returns.toEqualTypeOf<TaskChatEnv<Colour>>()
  expectTypeOf(chatTask<Colour>).returns.toEqualTypeOf<Task<Colour>>()
  expectTypeOf(messageEnvOf).returns.toEqualTypeOf<MessageEnv>()
})

test('a history gives texts, ids or a dictionary, as it is asked', () => {
  const text = (history: History) => history.applyChatTemplate({ tokenize: false })
  expectTypeOf(text).returns.toExtend<string | readonly unknown[]>()
  const dict = (history: History) => history.applyChatTemplate({ returnDict: true })
  expectTypeOf(dict).returns.toEqualTypeOf<TensorDict>()
  const masked = (history: History) => history.applyChatTemplate({ mask: { preset: 'trl' } })
  expectTypeOf(masked).returns.toEqualTypeOf<TensorDict>()
  expectTypeOf<History>().toExtend<Iterable<Message>>()
  expectTypeOf<History>().toExtend<Disposable>()
  expectTypeOf<Tokens['rows']>().returns.toEqualTypeOf<Tensor[]>()
  expectTypeOf<Tokens['toText']>().returns.toEqualTypeOf<Text>()
})

test('a wrapper has the policy that it wraps, and old names of specs are the same classes', () => {
  expectTypeOf<TransformersWrapper>().toExtend<LLMWrapperBase>()
  expectTypeOf<TransformersWrapper['policy']>().toExtend<DecoderPolicy>()
  expectTypeOf<vLLMWrapper['policy']>().toEqualTypeOf<AsyncVLLM>()
  expectTypeOf<LLMWrapperBase['forward']>().returns.resolves.toEqualTypeOf<TensorDict>()
  expectTypeOf(CompositeSpec).toEqualTypeOf(Composite)
  expectTypeOf(DiscreteTensorSpec).toEqualTypeOf(Categorical)
})

test('a collector yields batches, and a batch becomes columns of a loss', () => {
  expectTypeOf<LLMCollector>().toExtend<AsyncIterable<LLMCollectorBatch>>()
  expectTypeOf<LLMCollectorBatch>().toEqualTypeOf<TensorDict | LazyStack | null>()
  expectTypeOf(replyPolicy).returns.toEqualTypeOf<DictPolicy>()
  expectTypeOf(lossBatch).returns.toExtend<Omit<LossBatch, 'logProb'>>()
})

test('unknown options and modes are refused', () => {
  const wrong = (env: EnvBase, policy: DictPolicy) => {
    // @ts-expect-error no such mode
    new ChatEnv({ inputMode: 'ids' })
    // @ts-expect-error TorchRL's name of `systemPrompt`
    new ChatEnv({ system_prompt: 'You add up.' })
    // @ts-expect-error a dataset is needed
    new DatasetChatEnv({ numEnvs: 2 })
    // @ts-expect-error a number of steps is needed
    rollout(env, policy, {})
    // @ts-expect-error the option is called `dialogTurnsPerBatch`
    new LLMCollector({ env, policy, framesPerBatch: 2 })
    // @ts-expect-error the field is called `prompt`
    new Text({ prompts: ['a'] })
    // @ts-expect-error replies are texts
    replyPolicy({ inputMode: 'text', reply: () => [1, 2] })
  }
  expectTypeOf(wrong).toBeFunction()
})
