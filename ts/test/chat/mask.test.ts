import { describe, expect, it } from 'vitest'
import { createRenderer, type MaskOptions, ORIGINS, type Rendered, tokenMasks } from '../../src/chat/index.js'
import { CharTokenizer } from '../../src/tokenizer/index.js'

const failing = (code: string, text = '') =>
  expect.objectContaining({ name: 'FulmarError', code, message: expect.stringContaining(text) })

const tokenizer = new CharTokenizer()
const renderer = createRenderer(tokenizer, { name: 'chatml' })
const chat = [
  { role: 'user', content: '1+1?' },
  { role: 'assistant', content: '2' },
  { role: 'user', content: 'and 2+2?' },
  { role: 'assistant', content: '4' },
]

function counted(rendered: Rendered, options?: MaskOptions): string {
  const { assistant } = tokenMasks(rendered, renderer.stopIds, options)
  return tokenizer.decode(rendered.ids.filter((_, t) => assistant[t] === 1))
}

/** The conversation whose last answer a policy drew. */
function drawn(): Rendered {
  const rendered = renderer.render(chat)
  const first = rendered.messageIndices.indexOf(3)
  const sampled = ORIGINS.indexOf('sampled')
  const origins = rendered.origins.map((origin, t) =>
    t >= first && rendered.sampledMask[t] === 1 ? sampled : origin,
  )
  return { ...rendered, origins }
}

describe('tokenMasks', () => {
  it('has presets that differ in the end of a turn and in what was drawn', () => {
    expect(counted(drawn())).toBe('24')
    expect(counted(drawn(), { preset: 'torchrl' })).toBe('24')
    expect(counted(drawn(), { preset: 'trl' })).toBe('2<|im_end|>4<|im_end|>')
    expect(counted(drawn(), { preset: 'generated' })).toBe('4<|im_end|>')
  })

  it('gives the same mask for the same preset whether the answer was drawn or read', () => {
    const read = renderer.render(chat)
    for (const preset of ['torchrl', 'trl'] as const)
      expect(counted(read, { preset })).toBe(counted(drawn(), { preset }))
    expect(counted(read, { preset: 'generated' })).toBe('4<|im_end|>')
  })

  it('tells apart what was drawn and what ends a turn', () => {
    const rendered = drawn()
    const { sampled, endOfTurn } = tokenMasks(rendered, renderer.stopIds)
    const text = (mask: Uint8Array) => tokenizer.decode(rendered.ids.filter((_, t) => mask[t] === 1))
    expect([text(sampled), text(endOfTurn)]).toEqual(['4<|im_end|>', '<|im_end|><|im_end|>'])
  })

  it('does in spite of the preset what is asked for', () => {
    expect(counted(drawn(), { include: { turns: 'last' } })).toBe('4')
    expect(counted(drawn(), { include: { endOfTurn: true } })).toBe('2<|im_end|>4<|im_end|>')
    expect(counted(drawn(), { preset: 'generated', include: { endOfTurn: false } })).toBe('4')
  })

  it('says why nothing would train', () => {
    const question = renderer.render(chat.slice(0, 1))
    expect(() => counted(question)).toThrow(failing('EMPTY', "no assistant's turn"))
    expect(counted(question, { allowEmpty: true })).toBe('')
  })

  it('refuses parts that origins do not tell apart, unknown options and columns that do not fit', () => {
    expect(() => counted(drawn(), { include: { reasoning: false } })).toThrow(failing('INCOMPATIBLE'))
    expect(() => counted(drawn(), { preset: 'all' as 'trl' })).toThrow(failing('UNKNOWN_NAME'))
    expect(() => counted(drawn(), { allow: true } as MaskOptions)).toThrow(failing('UNKNOWN_NAME'))
    const rendered = drawn()
    expect(() => counted({ ...rendered, origins: rendered.origins.slice(1) })).toThrow(
      failing('SHAPE_MISMATCH'),
    )
    expect(() => counted({ ...rendered, origins: rendered.origins.map(() => 99) })).toThrow(/origin/)
  })
})
