import { describe, expect, it } from 'vitest'
import {
  GRPOLoss,
  headBackward,
  headLogProbs,
  tokenLogProbs,
  tokenLogProbsBackward,
} from '../../src/objective/index.js'
import { expectNear, flat, readRows } from './rows.js'

const floats = (value: unknown) => Float32Array.from(flat(value))

describe('tokenLogProbs', () => {
  it('gives the log-probabilities, entropies and gradients of torch', () => {
    for (const row of readRows('logits', ({ kind }) => kind === 'gather')) {
      const options = {
        logits: floats(row.logits),
        ids: Uint32Array.from(row.ids),
        temperature: row.temperature,
      }
      const { logProb, entropy } = tokenLogProbs(options)
      expectNear(logProb, row.log_probs)
      expectNear(entropy, row.entropy)
      const [upstream, none] = [floats(row.upstream_gradient), new Float32Array(row.ids.length)]
      const byLogProb = tokenLogProbsBackward({ ...options, gradLogProb: upstream })
      expectNear(byLogProb, flat(row.grad_logits_of_log_probs))
      const byEntropy = tokenLogProbsBackward({ ...options, gradLogProb: none, gradEntropy: upstream })
      expectNear(byEntropy, flat(row.grad_logits_of_entropy))
    }
  })

  it.each<[string, object]>([
    ['EMPTY', { logits: new Float32Array(), ids: new Uint32Array() }],
    ['SHAPE_MISMATCH', { ids: Uint32Array.of(0, 0, 0) }],
    ['OUT_OF_RANGE', { ids: Uint32Array.of(4) }],
    ['OUT_OF_RANGE', { temperature: 0 }],
    ['NON_FINITE', { logits: Float32Array.of(0, Number.NaN, 0, 0) }],
    ['MALFORMED', { ids: [0] }],
    ['UNKNOWN_NAME', { mask: 1 }],
  ])('refuses with %s the change %j', (code, change) => {
    const options = { logits: new Float32Array(4), ids: Uint32Array.of(1), ...change }
    expect(() => tokenLogProbs(options)).toThrow(expect.objectContaining({ code }))
  })
})

describe('headLogProbs', () => {
  it('tells the sums of squared probabilities where asked, as rows of logits do and as a pass by hand', () => {
    const [hidden, weight] = [Float32Array.of(1, -2, 0.5, 3), Float32Array.of(1, 0, 0, 1, -1, 2)]
    const ids = Uint32Array.of(2, 0)
    const logits = Float32Array.of(1, -2, -5, 0.5, 3, 5.5)
    const temperature = 0.8
    const told = headLogProbs({ hidden, weight, width: 2, ids, temperature, logSumSqProb: true })
    const { logSumSqProb, ...rest } = told
    expect(rest).toEqual(headLogProbs({ hidden, weight, width: 2, ids, temperature }))
    expect(tokenLogProbs({ logits, ids, temperature, logSumSqProb: true })).toEqual(told)
    const wanted = [0, 1].map((row) => {
      const e = Array.from(logits.subarray(3 * row, 3 * row + 3), (x) => Math.exp(x / temperature))
      const sum = e.reduce((all, one) => all + one, 0)
      return Math.log(e.reduce((all, one) => all + (one / sum) ** 2, 0))
    })
    expectNear(logSumSqProb ?? [], wanted)
  })

  it('gives, with a GRPO loss behind it, the loss and the gradients of Liger', () => {
    for (const row of readRows('logits', ({ kind }) => kind === 'liger_fused_linear_grpo')) {
      const { loss_type: type, beta, temperature, max_completion_length: fixedLength } = row.config
      const head = {
        hidden: floats(row.hidden),
        weight: floats(row.weight),
        width: row.weight[0].length,
        ids: Uint32Array.from(flat(row.ids)),
        temperature,
      }
      const length = row.ids[0].length
      const normalizations = { grpo: 'sequenceMean', bnpo: 'tokenMean', dr_grpo: { fixedLength } }
      const loss = new GRPOLoss({
        normalization: Reflect.get(normalizations, type),
        klToRef: { coefficient: beta },
      })
      const { loss: value, gradLogProb } = loss.forward({
        logProb: headLogProbs(head).logProb,
        oldLogProb: floats(row.old_log_probs),
        refLogProb: floats(row.ref_log_probs),
        advantage: floats(row.advantages),
        mask: Uint8Array.from(flat(row.mask)),
        offsets: Uint32Array.from({ length: row.ids.length + 1 }, (_, s) => s * length),
      })
      expectNear([value], [row.loss])
      const gradients = headBackward({ ...head, gradLogProb })
      expectNear(gradients.hidden, flat(row.gradients.hidden))
      expectNear(gradients.weight, flat(row.gradients.weight))
    }
  })

  it('adds a bias, and refuses arrays that do not fit', () => {
    const head = {
      hidden: new Float32Array(2),
      weight: new Float32Array(4),
      width: 2,
      ids: Uint32Array.of(0),
    }
    const { logProb } = headLogProbs({ ...head, bias: Float32Array.of(Math.log(3), 0) })
    expectNear(logProb, [Math.log(0.75)])
    const { bias } = headBackward({ ...head, bias: new Float32Array(2), gradLogProb: Float32Array.of(2) })
    expectNear(bias ?? [], [1, -1])
    for (const change of [{ hidden: new Float32Array(3) }, { bias: new Float32Array(3) }]) {
      expect(() => headLogProbs({ ...head, ...change })).toThrow(
        expect.objectContaining({ code: 'SHAPE_MISMATCH' }),
      )
    }
  })
})
