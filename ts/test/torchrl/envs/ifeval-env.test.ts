import { describe, expect, it } from 'vitest'
import { listDataset } from '../../../src/data/index.js'
import { checkEnvSpecs } from '../../../src/spec/index.js'
import { CharTokenizer } from '../../../src/tokenizer/index.js'
import {
  AddThinkingPrompt,
  IFEvalEnv,
  type IFEvalEnvOptions,
  replyPolicy,
  rollout,
  specEnvOf,
} from '../../../src/torchrl/index.js'
import { failing, template } from './chats.js'

const tokenizer = new CharTokenizer()
const dataset = [
  {
    key: 1,
    prompt: 'Write a riddle without commas, with a title.',
    instruction_id_list: ['punctuation:no_comma', 'detectable_format:title'],
    kwargs: [{}, {}],
  },
  { key: 2, prompt: 'Shout.', instruction_id_list: ['change_case:english_capital'], kwargs: [null] },
]
const good = [
  '<think>t</think><answer><<Riddle>> What has keys?</answer>',
  '<answer>quiet words here</answer>',
]

async function nextOf(options: Partial<IFEvalEnvOptions> = {}, reply = good) {
  const env = new IFEvalEnv({ dataset, shuffle: false, numEnvs: 2, ...options })
  const inputMode = env.inputMode ?? 'history'
  const policy = replyPolicy({ inputMode, tokenizer, reply: (_, at) => reply[at] ?? '' })
  const { parts } = await rollout(env, policy, { maxSteps: 1 })
  return parts[0]?.dict('next') ?? expect.unreachable()
}

describe('IFEvalEnv', () => {
  it('holds responses against the instructions of their own prompts, in every form of a chat', async () => {
    for (const inputMode of ['history', 'text', 'tokens'] as const) {
      const next = await nextOf({ inputMode, tokenizer, template })
      const score = next.dict('ifeval_score')
      expect([...score.tensor('prompt_level_strict_acc').data]).toEqual([1, 0])
      expect([...score.ragged('inst_level_strict_acc').row(0).data]).toEqual([1, 1])
      expect([...score.ragged('inst_level_loose_acc').row(1).data]).toEqual([0])
      const [first, second] = next.tensor('reward').toFloat32()
      expect(first).toBeCloseTo(1.15)
      expect(second).toBeCloseTo(0.1)
      expect([...next.tensor('done').data]).toEqual([1, 1])
      expect(next.value('instruction_id_list')).toEqual(dataset.map((row) => row.instruction_id_list))
      expect(next.value('key')).toEqual([1, 2])
    }
  })

  it('earns as its options say', async () => {
    const own = await nextOf({
      reward: { aggregateReward: (_, { answerBlocks }) => answerBlocks.length * 7 },
    })
    expect([...own.tensor('reward').data]).toEqual([7, 7])
    const none = await nextOf({ reward: { aggregateReward: false } })
    expect(none.has('reward')).toBe(false)
    const off = await nextOf({ computeReward: false })
    expect(off.keys()).not.toContain('ifeval_score')
    const broken = await nextOf({
      reward: { aggregateReward: (_, { thinkBlocks }) => (thinkBlocks.length ? 1 : Number.NaN) },
    })
    expect([...broken.tensor('scored').data]).toEqual([1, 0])
    expect(broken.value('unscored')).toEqual([null, expect.stringContaining('finite')])
    expect([...broken.tensor('reward').toFloat32()]).toEqual([1, Number.NaN])
    const open = await nextOf({ maxSteps: 2 }, ['no tags', '<answer>A</answer>'])
    expect([...open.tensor('done').data]).toEqual([0, 1])
  })

  it('takes the score back, each part of it, where an element shall think again', async () => {
    const again = new AddThinkingPrompt({ cond: (next) => Number(next.tensor('reward').data[0]) > 1 })
    const next = await nextOf({ transforms: [again], maxSteps: 2 })
    expect([...next.ragged(['ifeval_score', 'inst_level_strict_acc']).row(0).data]).toEqual([0, 0])
    expect(next.tensor('reward').data[0]).toBe(0)
    expect(next.tensor('reward').data[1]).toBeCloseTo(0.1)
  })

  it('does what its specs say', async () => {
    await checkEnvSpecs(specEnvOf(new IFEvalEnv({ dataset, numEnvs: 2 })))
  })

  it('refuses rows that nobody can check, before anything runs', async () => {
    const wrong = (row: object) => () =>
      new IFEvalEnv({ dataset: [dataset[0], { ...dataset[1], ...row }] as never })
    expect(wrong({ instruction_id_list: ['no:such'] })).toThrow(failing('UNKNOWN_NAME', /^dataset\[1\]/))
    expect(wrong({ kwargs: [] })).toThrow(failing('SHAPE_MISMATCH', /^dataset\[1\]/))
    expect(wrong({ prompt: 7 })).toThrow(failing('MALFORMED', /^dataset\[1\]/))
    // A stream fails when the row is read.
    const items = [dataset[0], { ...dataset[1], kwargs: [] }] as never[]
    const env = new IFEvalEnv({ dataset: listDataset({ items }) })
    await env.reset()
    await expect(env.reset()).rejects.toThrow(failing('SHAPE_MISMATCH'))
  })
})
