/**
 * GSM8K for base models, as in TorchRL's older programs: a question within a text that the model continues.
 */

import { checkKnownKeys } from '../../core/index.js'
import { type Dataset, listDataset } from '../../data/index.js'
import { GSM8KRewardParser, type GSM8KRow, gsm8kTruth } from '../../reward/index.js'
import type { TensorDict, TensorKey } from '../../tensor/index.js'
import { setEach, textsAt } from '../data/dict-text.js'
import { AnswerRewardTransform } from './answer-reward-transform.js'
import { DataLoadingPrimer } from './data-loading-primer.js'
import { LLMEnv } from './llm-env.js'
import { StepCounter } from './step-counter.js'
import { textOf } from './task-env.js'
import { type EnvTransform, TransformedEnv } from './transformed-env.js'

/** Options of {@link GSM8KPrepareQuestion}. */
export interface GSM8KPrepareQuestionOptions {
  /** Key of questions. @default 'text' */
  readonly inKey?: TensorKey
  /** Key of prompts. @default 'text' */
  readonly outKey?: TensorKey
}

/**
 * Puts the question of a reset into a conversation for a base model, which ends within the assistant's thoughts.
 *
 * @example
 * ```ts
 * import { NonTensorStack, TensorDict } from 'fulmar/tensor'
 * import { GSM8KPrepareQuestion, LLMEnv, TransformedEnv } from 'fulmar/torchrl'
 * import assert from 'node:assert/strict'
 *
 * const env = new TransformedEnv(new LLMEnv(), [new GSM8KPrepareQuestion()])
 * const dict = await env.reset(TensorDict.from({ text: new NonTensorStack(['1+1?']) }, { batchSize: [1] }))
 * assert.match(String(dict.value('text')), /User: 1\+1\? Assistant: <think>$/)
 * ```
 */
export class GSM8KPrepareQuestion implements EnvTransform {
  readonly #inKey: TensorKey
  readonly #outKey: TensorKey

  /** @throws {FulmarError} `UNKNOWN_NAME` for an unknown option. */
  constructor(options: GSM8KPrepareQuestionOptions = {}) {
    checkKnownKeys('options', options, ['inKey', 'outKey'])
    this.#inKey = options.inKey ?? 'text'
    this.#outKey = options.outKey ?? 'text'
  }

  /** @throws {FulmarError} `UNKNOWN_NAME` or `MALFORMED` without questions. */
  beforeReset(dict: TensorDict): TensorDict {
    const prompts = textsAt(dict, this.#inKey).map(
      (question) => `${OPENING} User: ${question} Assistant: <think>`,
    )
    setEach(dict, this.#outKey, prompts)
    return dict
  }
}

/** Options of {@link makeGsm8kEnv}. */
export interface MakeGsm8kEnvOptions {
  /** Rows: a list, shuffled, or a stream, taken as it comes. */
  readonly dataset: Dataset<GSM8KRow> | Iterable<GSM8KRow>
  /** @default 1 */
  readonly numEnvs?: number
  /** Number of consecutive episodes with the same row. @default 1 */
  readonly repeats?: number
  /** If true, all members of a group begin at the same reset. @default false */
  readonly groupRepeats?: boolean
  /** Fixes the order of a list. @default 0 */
  readonly seed?: number
}

/**
 * GSM8K in an {@link LLMEnv} of text: prompts at `text`, responses at `text_response`, one step an episode. New programs take
 * {@link GSM8KEnv}.
 *
 * @throws {FulmarError} As {@link GSM8KEnv}.
 *
 * @example
 * ```ts
 * import { NonTensorStack } from 'fulmar/tensor'
 * import { makeGsm8kEnv, rollout } from 'fulmar/torchrl'
 * import assert from 'node:assert/strict'
 *
 * const env = makeGsm8kEnv({ dataset: [{ question: '1+1?', answer: '#### 2' }], numEnvs: 2 })
 * const said = new NonTensorStack(['1+1</think><answer>2</answer>', '<answer>3</answer>'])
 * const steps = await rollout(env, (dict) => dict.set('text_response', said), { maxSteps: 3 })
 * assert.deepEqual([...steps.parts[0].tensor(['next', 'success']).data], [1, 0])
 * ```
 */
export function makeGsm8kEnv(options: MakeGsm8kEnvOptions): TransformedEnv {
  checkKnownKeys('options', options, ['dataset', 'numEnvs', 'repeats', 'groupRepeats', 'seed'])
  const { dataset, numEnvs = 1, repeats = 1, groupRepeats = false, seed = 0 } = options
  const isStream = 'next' in dataset && 'stateDict' in dataset
  const primer = new DataLoadingPrimer<GSM8KRow>({
    dataset: isStream ? dataset : listDataset({ items: dataset, shuffleSeed: seed }),
    repeats,
    collate: (row) => {
      const [text, answer] = [textOf(row, 'question'), textOf(row, 'answer')]
      gsm8kTruth(answer)
      return { text, answer }
    },
  })
  const env = new LLMEnv({ batchSize: groupRepeats ? numEnvs * repeats : numEnvs })
  const parser = new GSM8KRewardParser()
  // What goes in passes the last transform first: the row comes before its question is prepared.
  return new TransformedEnv(env, [
    new GSM8KPrepareQuestion(),
    primer,
    new StepCounter({ maxSteps: 1 }),
    new AnswerRewardTransform({ parser, responseKey: 'text_response' }),
  ])
}

const OPENING = `A conversation between User and Assistant. The user asks a question, and the Assistant solves it. \
The assistant first thinks about the reasoning process in the mind and then provides the user with the answer. \
The reasoning process and answer are enclosed within <think></think> and <answer></answer> tags, respectively, \
i.e., <think>reasoning process here</think> <answer>answer here</answer>.`
