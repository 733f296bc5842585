/**
 * Input that every loss and advantage must reject by a typed error that names the item, and never by a silent
 * NaN.
 */

import { describe, expect, it } from 'vitest'
import {
  BradleyTerryLoss,
  DistillationLoss,
  DPOLoss,
  GRPOLoss,
  groupAdvantage,
  KTOLoss,
  klEstimate,
  klReward,
  type LossResult,
  MCAdvantage,
  SFTLoss,
  tokenLogProbs,
} from '../../src/objective/index.js'

const refusal = (code: string, message: RegExp) =>
  expect.objectContaining({ name: 'FulmarError', code, message: expect.stringMatching(message) })
const floats = (...values: number[]) => Float32Array.from(values)

/** Two sequences of two trained tokens. */
const TOKENS = {
  logProb: floats(-1, -2, -1.5, -0.5),
  mask: Uint8Array.of(1, 1, 1, 1),
  offsets: Uint32Array.of(0, 2, 4),
}
const OTHERS = floats(-1, -1, -1, -1)
type Batch = typeof TOKENS & Readonly<Record<string, unknown>>

/** Each loss with a valid batch, and the column that it reads besides `logProb`. */
const LOSSES: [string, (batch: Batch) => LossResult, object, string][] = [
  [
    'SFTLoss',
    (batch) => new SFTLoss({ minorBeta: 0.1 }).forward(batch),
    { refLogProb: OTHERS },
    'refLogProb',
  ],
  ...(
    ['grpo', 'bnpo', 'dapo', 'gspo', 'gspoToken', 'luspo', 'cispo', 'sapo', 'vespo', 'gmpo', 'rloo'] as const
  ).map((preset): (typeof LOSSES)[number] => [
    `GRPOLoss ${preset}`,
    (batch) => new GRPOLoss({ preset }).forward(batch as never),
    { oldLogProb: OTHERS, advantage: floats(1, -1) },
    'oldLogProb',
  ]),
  ['DPOLoss', (batch) => new DPOLoss().forward(batch as never), { refLogProb: OTHERS }, 'refLogProb'],
  [
    'KTOLoss',
    (batch) => new KTOLoss().forward(batch as never),
    { refLogProb: OTHERS, desirable: Uint8Array.of(1, 0), klLogRatio: floats(0.1) },
    'refLogProb',
  ],
  [
    'DistillationLoss',
    (batch) => new DistillationLoss().forward(batch as never),
    { teacherLogProb: OTHERS },
    'teacherLogProb',
  ],
]

/** The core's name of a column. A teacher is a reference to it. */
function coreNameOf(column: string): string {
  const name = column === 'teacherLogProb' ? 'refLogProb' : column
  return name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`)
}

describe.each(LOSSES)('%s', (_, forward, own, column) => {
  const batch = { ...TOKENS, ...own }

  it('takes the batch that the others are changes of', () => {
    const { loss, gradLogProb } = forward(batch)
    expect([loss, ...gradLogProb].every(Number.isFinite)).toBe(true)
  })

  it('refuses mismatched lengths', () => {
    const short = floats(-1, -1, -1)
    expect(() => forward({ ...batch, [column]: short })).toThrow(
      refusal('SHAPE_MISMATCH', new RegExp(`^${coreNameOf(column)} length must equal`)),
    )
    expect(() => forward({ ...batch, logProb: short })).toThrow(
      refusal('SHAPE_MISMATCH', /log_prob length must equal log_prob = 3: got 4/),
    )
    expect(() => forward({ ...batch, mask: Uint8Array.of(1, 1) })).toThrow(refusal('SHAPE_MISMATCH', /mask/))
    expect(() => forward({ ...batch, offsets: Uint32Array.of(0, 2, 5) })).toThrow(
      refusal('SHAPE_MISMATCH', /offset/),
    )
  })

  it('refuses a mask of zeros', () => {
    expect(() => forward({ ...batch, mask: new Uint8Array(4) })).toThrow(refusal('EMPTY', /mask|train/))
  })

  it.each([Number.NaN, Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY])(
    'refuses %d where a token is trained, by its place, and never reads it elsewhere',
    (value) => {
      const broken = floats(-1, -1, -1, value)
      for (const name of ['logProb', column]) {
        const run = () => forward({ ...batch, [name]: broken })
        // An engine that does not know what it drew at says NaN: the token is left out, and counted.
        if (name === 'oldLogProb') expect(run().metrics.numNonFinite).toBe(1)
        else
          expect(run).toThrow(refusal('NON_FINITE', new RegExp(`^${coreNameOf(name)}\\[3\\] must be finite`)))
        const hidden = forward({ ...batch, [name]: broken, mask: Uint8Array.of(1, 1, 1, 0) })
        expect([hidden.loss, ...hidden.gradLogProb].every(Number.isFinite)).toBe(true)
      }
    },
  )
})

describe('names', () => {
  it('of losses, presets and options that are unknown are refused with the nearest', () => {
    const unknown = (message: RegExp) => refusal('UNKNOWN_NAME', message)
    expect(() => new GRPOLoss({ preset: 'grppo' as 'grpo' })).toThrow(unknown(/grppo/))
    expect(() => new GRPOLoss({ clipEpsilonn: 0.2 } as never)).toThrow(unknown(/did you mean 'clipEpsilon'/))
    expect(() => new DPOLoss({ lossWeights: { sigmoyd: 1 } as never })).toThrow(
      unknown(/sigmoyd.*did you mean 'sigmoid'/),
    )
    expect(() => new KTOLoss({ lossType: 'kot' as 'kto' } as never)).toThrow(unknown(/kot|lossType/))
    expect(() => new DistillationLoss({ direction: 'sideways' } as never)).toThrow(
      unknown(/sideways|direction/),
    )
    expect(() => new SFTLoss({ reduction: 'men' } as never)).toThrow(unknown(/men|reduction/))
  })
})

describe('rewards', () => {
  it.each([Number.NaN, Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY])(
    'that are %d are refused',
    (value) => {
      expect(() => groupAdvantage({ rewards: [1, value], groupSize: 2 })).toThrow(
        refusal('NON_FINITE', /reward\[1\]/),
      )
      using queues = new MCAdvantage<number>({ grpoSize: 2 })
      expect(() => queues.push('a', [1, value], 0)).toThrow(refusal('NON_FINITE', /reward/))
      const rewards = { chosen: floats(1, value), rejected: floats(0, 0) }
      expect(() => new BradleyTerryLoss().forward(rewards)).toThrow(refusal('NON_FINITE', /chosen\[1\]/))
    },
  )

  it('of groups of one are refused, as nothing stands beside it', () => {
    const one = refusal('OUT_OF_RANGE', /at least 2/)
    expect(() => groupAdvantage({ rewards: [1, 2], groupSize: 1 })).toThrow(one)
    expect(() => groupAdvantage({ rewards: [1, 2, 3], groupOffsets: Uint32Array.of(0, 2, 3) })).toThrow(one)
    expect(() => new MCAdvantage({ grpoSize: 1 })).toThrow(refusal('OUT_OF_RANGE', /2/))
  })
})

describe('log-probabilities', () => {
  it('that are not finite give no divergence and no penalty', () => {
    const [mask, offsets] = [Uint8Array.of(1, 1), Uint32Array.of(0, 2)]
    for (const value of [Number.NaN, Number.POSITIVE_INFINITY]) {
      const pair = { logProb: floats(-1, value), refLogProb: floats(-1, -1), mask }
      expect(() => klEstimate(pair)).toThrow(refusal('NON_FINITE', /log_?prob\[1\]/i))
      expect(() => klReward({ ...pair, offsets, reward: floats(1) } as never)).toThrow(
        refusal('NON_FINITE', /log_?prob\[1\]/i),
      )
    }
  })

  it('are not had for ids over the vocabulary', () => {
    const options = { logits: new Float32Array(6), ids: Uint32Array.of(2, 3) }
    expect(() => tokenLogProbs(options)).toThrow(refusal('OUT_OF_RANGE', /ids\[1\].*3/))
  })
})
