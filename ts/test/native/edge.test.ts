// Compares the edge module with the whole one: the same results, and the functions that it lacks.

import { spawnSync } from 'node:child_process'
import { fileURLToPath } from 'node:url'
import { describe, expect, it } from 'vitest'

const program = fileURLToPath(new URL('edge-process.mjs', import.meta.url))

/** The output of edge-process.mjs with these options of Node. */
function answersOf(...options: string[]) {
  const { stdout, stderr } = spawnSync(process.execPath, [...options, program], { encoding: 'utf8' })
  expect(stderr).toBe('')
  return JSON.parse(stdout)
}

describe('the edge module', () => {
  const [whole, edge] = [answersOf(), answersOf('--conditions=fulmar-edge')]

  it('answers as the addon does, to the last bit', () => {
    expect(edge.answers).toEqual(whole.answers)
    expect(edge.answers.renderings.filter(Array.isArray).length).toBe(12)
    expect(edge.answers.rewards).toBe('42')
    expect(edge.answers.numbers).toMatchObject({ loss: expect.any(Number), draws: { length: 8 } })
    expect(edge.answers.ledger).toEqual([
      [
        [1, 2, 3, 4, 5],
        [0, 0, 0, 1, 1],
      ],
    ])
  })

  it('has no name that the whole package lacks', () => {
    expect(whole.names).toEqual(expect.arrayContaining(edge.names))
    expect(edge.main).toEqual(
      expect.arrayContaining(['ORIGINS', 'GRPOLoss', 'HfTokenizer', 'init', 'trainByteBpe']),
    )
    expect([...edge.main].sort()).toEqual([...edge.names].sort())
  })

  it('says of other entries and of other tokenizers that the whole package has them', () => {
    expect(whole).toMatchObject({ absent: 'there', other: expect.any(Number) })
    expect(edge.absent).toEqual({ name: 'FulmarError', code: 'UNAVAILABLE' })
    expect(edge.other).toEqual({
      code: 'UNAVAILABLE',
      message: expect.stringContaining('the whole build of fulmar'),
    })
  })
})
