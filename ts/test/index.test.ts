/** Types of `fulmar`, the main path: a model, a task, a recipe. */

import { expectTypeOf, test } from 'vitest'
import {
  type BuildDescription,
  createModel,
  type DeviceName,
  DPOLoss,
  defineTask,
  dpo,
  type ErrorCode,
  type Evaluation,
  evaluate,
  FulmarError,
  type GrpoStep,
  grpo,
  type Message,
  type Model,
  type PlacedDevice,
  type Policy,
  type Renderer,
  Rng,
  Rollouter,
  reward,
  type SftStep,
  sft,
  type Task,
  tool,
} from '../src/index.js'

interface Colour {
  readonly colour: string
  readonly length: number
}
const rows: readonly Colour[] = [{ colour: 'red', length: 3 }]

test('a task has the type of its rows, in prompts, rewards and samples', () => {
  const define = () =>
    defineTask({
      rows,
      prompt: (row) => {
        expectTypeOf(row).toEqualTypeOf<Colour>()
        return row.colour
      },
      rewards: [reward<Colour>('length', ({ text, sample }) => text.length === sample.length)],
    })
  expectTypeOf(define).returns.toEqualTypeOf<Task<Colour>>()
  const other = () =>
    // @ts-expect-error a row has no such key
    defineTask({ rows, prompt: ({ color }) => color, rewards: [] })
  // @ts-expect-error the option is called `rows`
  const unknown = () => defineTask({ row: rows, prompt: () => '', rewards: [] })
  // @ts-expect-error a row has no such key
  const misspelt = () => reward<Colour>('color', ({ sample }) => sample.color === 'red')
  // @ts-expect-error a reward is a number, a boolean or a reason
  const text = () => reward('text', () => 'good')
  expectTypeOf([other, unknown, misspelt, text]).toBeArray()
})

test('a recipe takes a model and a task, and yields its own steps', () => {
  const train = (model: Model, task: Task<Colour>) =>
    grpo({
      model,
      task,
      lora: { rank: 8 },
      onGroup: (group) => expectTypeOf(group.sample).toEqualTypeOf<Colour>(),
    })
  expectTypeOf(train).returns.toEqualTypeOf<AsyncGenerator<GrpoStep, void, undefined>>()
  expectTypeOf<GrpoStep['reward']>().toEqualTypeOf<{ readonly mean: number; readonly std: number }>()
  expectTypeOf<GrpoStep['metrics'][string]>().toEqualTypeOf<number>()
  const examples = (model: Model) => sft({ model, examples: [{ prompt: 'a', completion: 'b' }] })
  expectTypeOf(examples).returns.toEqualTypeOf<AsyncGenerator<SftStep, void, undefined>>()
  const wrong = (model: Model, task: Task<Colour>) => {
    // @ts-expect-error TRL's name of `groupSize`
    grpo({ model, task, num_generations: 8 })
    // @ts-expect-error the loss reads pairs
    grpo({ model, task, loss: new DPOLoss() })
    // @ts-expect-error a pair has an answer that is rejected
    dpo({ model, pairs: [{ prompt: 'a', chosen: 'b' }] })
    // @ts-expect-error a step cannot be changed
    const change = (step: GrpoStep) => (step.index = 1)
    return change
  }
  expectTypeOf(wrong).toBeFunction()
})

test('an evaluation has the rows of its task', () => {
  const measure = (model: Model, task: Task<Colour>) => evaluate({ model, task, numProblems: 10 })
  expectTypeOf(measure).returns.resolves.toEqualTypeOf<Evaluation<Colour>>()
  expectTypeOf<Evaluation<Colour>['samples'][number]['sample']>().toEqualTypeOf<Colour>()
  expectTypeOf<Evaluation['interval']>().toEqualTypeOf<readonly [low: number, high: number]>()
  const parts = (policy: Policy, renderer: Renderer, task: Task<Colour>) =>
    evaluate({ model: { policy, renderer }, task })
  expectTypeOf(parts).returns.resolves.toEqualTypeOf<Evaluation<Colour>>()
})

test('a rollouter has the rows of its task', () => {
  const make = (policy: Policy, task: Task<Colour>, renderer: Renderer) =>
    new Rollouter({ policy, task, renderer, maxTokens: 8 })
  expectTypeOf(make).returns.toEqualTypeOf<Rollouter<Colour>>()
  expectTypeOf<Rollouter<Colour>['getTrainingSample']>().returns.toEqualTypeOf<Colour>()
  // @ts-expect-error this task has other rows
  const run = (rollouter: Rollouter<Colour>) => rollouter.runGroup({ sample: { colour: 'red' }, groupId: 0 })
  expectTypeOf(run).toBeFunction()
})

test('a tool has the type of its schema', () => {
  const schema = { type: 'object', properties: { a: { type: 'number' } }, required: ['a'] } as const
  const add = () =>
    tool({
      name: 'add',
      description: 'Adds one.',
      schema,
      run: ({ a }) => {
        expectTypeOf(a).toEqualTypeOf<number>()
        return a + 1
      },
    })
  expectTypeOf(add).toBeFunction()
})

test('a model is disposed of, and its shape is checked', () => {
  expectTypeOf(createModel).returns.toEqualTypeOf<Model>()
  expectTypeOf<Model>().toExtend<Disposable>()
  expectTypeOf<Model['chat']>().returns.resolves.toEqualTypeOf<Message>()
  expectTypeOf<Rng>().toExtend<Disposable>()
  expectTypeOf(Rng.fromSeed).parameter(0).toEqualTypeOf<number>()
  // @ts-expect-error no such family
  const family = () => createModel({ seed: 1 }, { model_type: 'gpt2' })
  // @ts-expect-error a seed is needed
  const seed = () => createModel({})
  expectTypeOf([family, seed]).toBeArray()
})

test('errors, devices and backends are closed unions', () => {
  expectTypeOf<FulmarError['code']>().toEqualTypeOf<ErrorCode>()
  expectTypeOf<'EMPTY'>().toExtend<ErrorCode>()
  expectTypeOf<'NOT_FOUND'>().not.toExtend<ErrorCode>()
  expectTypeOf<FulmarError>().toExtend<Error>()
  // @ts-expect-error no such code
  const code = () => new FulmarError('NOT_FOUND', 'a file must exist')
  expectTypeOf<BuildDescription['backend']>().toEqualTypeOf<'native' | 'wasm'>()
  expectTypeOf<'cuda:1'>().toExtend<DeviceName>()
  expectTypeOf<'gpu'>().not.toExtend<DeviceName>()
  expectTypeOf<'auto'>().not.toExtend<PlacedDevice>()
  expectTypeOf(code).toBeFunction()
})
