import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { checkKnownKeys, describeValue, nearestName } from '../../src/core/index.js'
import { PEER_WORDS } from '../../src/core/peer-words.js'

const KNOWN = ['groupSize', 'steps', 'maxTokens', 'learningRate']

describe('checkKnownKeys', () => {
  it('accepts known keys and names the nearest one for a spelling mistake', () => {
    expect(() => checkKnownKeys('grpo', { steps: 1, groupSize: 2 }, KNOWN)).not.toThrow()
    expect(() => checkKnownKeys('grpo', { groupsize: 2 }, KNOWN)).toThrow(
      "grpo.groupsize must be a known key: did you mean 'groupSize'?",
    )
  })

  it('lists what is known where nothing is near', () => {
    expect(() => checkKnownKeys('grpo', { banana: 2 }, ['steps'])).toThrow(/known are steps$/)
  })

  it('refuses options without a required key', () => {
    expect(() => checkKnownKeys('grpo', { steps: 1 }, KNOWN, ['steps'])).not.toThrow()
    for (const options of [{}, { steps: undefined }])
      expect(() => checkKnownKeys('grpo', options, KNOWN, ['steps'])).toThrow(
        expect.objectContaining({ code: 'MALFORMED', message: 'grpo.steps must be given: it is undefined' }),
      )
  })

  it('refuses what is no object', () => {
    for (const value of [null, 7, 'x', [1], undefined]) {
      expect(() => checkKnownKeys('grpo', value, KNOWN)).toThrow(
        expect.objectContaining({ code: 'MALFORMED' }),
      )
    }
  })
})

describe('nearestName', () => {
  it('finds every known name through one wrong, missing, doubled or swapped letter', () => {
    fc.assert(
      fc.property(
        fc.constantFrom(...KNOWN),
        fc.nat({ max: 4 }),
        fc.constantFrom('q', ''),
        (name, at, letter) => {
          expect(nearestName(name.slice(0, at) + letter + name.slice(at + 1), KNOWN)).toBe(name)
          expect(nearestName(name.slice(0, at) + name.charAt(at) + name.slice(at), KNOWN)).toBe(name)
          const swapped = name.slice(0, at) + name.charAt(at + 1) + name.charAt(at) + name.slice(at + 2)
          expect(nearestName(swapped, KNOWN)).toBe(name)
        },
      ),
    )
  })

  it('compares long keys by their beginning, so a hostile key costs nothing', () => {
    expect(nearestName('x'.repeat(1_000_000), KNOWN)).toBeUndefined()
  })
})

describe('words of other libraries', () => {
  it.each([
    ['lr', 'learningRate'],
    ['LR', 'learningRate'],
    ['num_generations', 'groupSize'],
    ['numGenerations', 'groupSize'],
    ['max_completion_length', 'maxTokens'],
    ['max-completion-length', 'maxTokens'],
    ['group_size', 'groupSize'],
    ['GROUP_SIZE', 'groupSize'],
    ['learning-rate', 'learningRate'],
  ])('%s means %s', (word, ours) => {
    expect(nearestName(word, KNOWN)).toBe(ours)
  })

  it('mean values as well as keys, and only what is known where they stand', () => {
    expect(nearestName('float32', ['f16', 'bf16', 'f32'])).toBe('f32')
    expect(nearestName('dr_grpo', ['grpo', 'drGrpo', 'dapo'])).toBe('drGrpo')
    expect(nearestName('lr', ['temperature', 'topK'])).toBeUndefined()
    expect(nearestName('constructor', ['steps'])).toBeUndefined()
  })

  it('leave no word without a form of our own', () => {
    for (const [word, ours] of Object.entries(PEER_WORDS)) {
      expect(ours.length, word).toBeGreaterThan(0)
      for (const one of ours) expect(nearestName(word, [one, 'zzzzzzzzzzzzzzzzzzzzzz'])).toBe(one)
    }
  })
})

describe('describeValue', () => {
  it('says what a value is, in few characters', () => {
    const values = [null, undefined, Number.NaN, 'text', 'y'.repeat(99), [1, 2], { a: 1 }, () => 1]
    expect(values.map(describeValue)).toEqual([
      'null',
      'undefined',
      'NaN',
      '"text"',
      `"${'y'.repeat(40)}..."`,
      'an array of 2',
      'an object',
      'a function',
    ])
  })
})
