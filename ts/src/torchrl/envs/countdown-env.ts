/** The game of countdown as an environment. */

import { generatedDataset } from '../../data/index.js'
import { COUNTDOWN_PROMPT } from '../../reward/countdown.js'
import {
  type CountdownProblemOptions,
  CountdownRewardParser,
  type CountdownRewardParserOptions,
  type CountdownRow,
  countdownProblem,
  type DrawsBelow,
} from '../../reward/index.js'
import { AnswerRewardTransform } from './answer-reward-transform.js'
import { DatasetChatEnv } from './dataset-chat-env.js'
import { type TaskEnvOptions, taskEnvOptions } from './task-env.js'

/** Options of {@link CountdownEnv}. */
export interface CountdownEnvOptions
  extends Omit<TaskEnvOptions<CountdownRow>, 'dataset' | 'shuffle'>,
    CountdownProblemOptions {
  /** Names the stream of games: workers with one seed and different names see different games. @default 'train' */
  readonly stream?: string
  /** Options of the scoring. */
  readonly reward?: CountdownRewardParserOptions
}

/**
 * Endless games of countdown: a {@link DatasetChatEnv} over {@link countdownProblem}, by default of one step an episode.
 *
 * @example
 * ```ts
 * import { CountdownEnv, replyPolicy, rollout } from 'fulmar/torchrl'
 * import assert from 'node:assert/strict'
 *
 * const env = new CountdownEnv({ seed: 42, numEnvs: 2 })
 * const steps = await rollout(env, replyPolicy({ inputMode: 'history', reply: () => '<answer>1+1</answer>' }), { maxSteps: 9 })
 * assert.deepEqual(steps.batchSize, [2, 1])
 * assert.ok(steps.parts[0]?.tensor(['next', 'reward']).toFloat32().every((reward) => Math.abs(reward - 0.1) < 1e-6))
 * ```
 */
export class CountdownEnv extends DatasetChatEnv<CountdownRow> {
  /** @throws {FulmarError} As {@link countdownProblem} and {@link DatasetChatEnv}. */
  constructor(options: CountdownEnvOptions = {}) {
    const { numCount, maxNumber, maxTarget, allowSum, stream = 'train', reward, ...rest } = options
    const { seed = 0, tokenizer } = rest
    const problem = {
      ...(numCount !== undefined && { numCount }),
      ...(maxNumber !== undefined && { maxNumber }),
      ...(maxTarget !== undefined && { maxTarget }),
      ...(allowSum !== undefined && { allowSum }),
    }
    const make = (rng: DrawsBelow) => countdownProblem(rng, problem)
    super(
      taskEnvOptions(
        { ...rest, dataset: generatedDataset({ seed, name: `countdown/${stream}`, make }) },
        {
          systemPrompt: COUNTDOWN_PROMPT,
          collate: ({ query, answer }) => ({ query, answer }),
          scored: () =>
            new AnswerRewardTransform({
              parser: new CountdownRewardParser(reward),
              ...(tokenizer && { tokenizer }),
            }),
        },
      ),
    )
  }
}
