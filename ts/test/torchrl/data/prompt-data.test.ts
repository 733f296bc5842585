import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { Tensor } from '../../../src/tensor/index.js'
import { PromptData } from '../../../src/torchrl/index.js'
import { failing } from '../envs/chats.js'

const integers = (values: readonly number[]) => BigInt64Array.from(values, BigInt)

function promptsOf(rows: readonly (readonly number[])[], ends: readonly number[]) {
  const shape = [rows.length, rows[0]?.length ?? 0]
  const fields = {
    input_ids: Tensor.from(integers(rows.flat()), { shape }),
    attention_mask: Tensor.from(integers(rows.flat().map(() => 1)), { shape }),
    prompt_rindex: Tensor.from(integers(ends)),
  }
  return PromptData.from(fields, { batchSize: [rows.length] })
}

describe('PromptData', () => {
  it('keeps what is before the end of the prompt, and leaves the record alone', () => {
    const rows = fc.integer({ min: 1, max: 6 }).chain((width) => {
      const row = fc.array(fc.nat(9), { minLength: width, maxLength: width })
      return fc.array(fc.tuple(row, fc.nat(width)), { minLength: 1, maxLength: 4 })
    })
    fc.assert(
      fc.property(rows, fc.nat(60_000), (pairs, padTokenId) => {
        const data = promptsOf(
          pairs.map(([row]) => row),
          pairs.map(([, end]) => end),
        )
        const masked = PromptData.maskLabel(data, { padTokenId })
        const wanted = pairs.flatMap(([row, end]) => row.map((id, at) => (at < end ? id : padTokenId)))
        const marks = pairs.flatMap(([row, end]) => row.map((_, at) => Number(at < end)))
        expect([...masked.input_ids.data]).toEqual(wanted.map(BigInt))
        expect([...masked.attention_mask.data]).toEqual(marks.map(BigInt))
        expect([...data.input_ids.data]).toEqual(pairs.flatMap(([row]) => row).map(BigInt))
      }),
      { numRuns: 50, seed: 1 },
    )
  })

  it('pads with the end of GPT-2 by default', () => {
    expect([...PromptData.maskLabel(promptsOf([[1, 2]], [1])).input_ids.data]).toEqual([1n, 50256n])
  })

  it('says what is wrong', () => {
    const data = promptsOf([[1, 2]], [1])
    const cases: [() => unknown, string, RegExp][] = [
      [() => PromptData.maskLabel(data, { padTokenId: -1 }), 'OUT_OF_RANGE', /padTokenId/],
      [() => PromptData.maskLabel(data, { pad: 1 } as never), 'UNKNOWN_NAME', /pad/],
      [() => PromptData.maskLabel(promptsOf([[1, 2]], [3])), 'OUT_OF_RANGE', /prompt_rindex .*2: got 3/],
      [() => PromptData.maskLabel(promptsOf([[1, 2]], [-1])), 'OUT_OF_RANGE', /got -1/],
      [() => PromptData.maskLabel(data.at(0)), 'SHAPE_MISMATCH', /\[B, L\]: got \[2\]/],
    ]
    for (const [make, code, message] of cases) expect(make, String(make)).toThrow(failing(code, message))
  })
})
