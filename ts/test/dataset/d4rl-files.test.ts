import { describe, expect, it } from 'vitest'
import { D4RL_FILES, D4RL_SERVER } from '../../src/dataset/d4rl-files.js'
import { rowsOf } from './golden-rows.js'

describe('D4RL_FILES', () => {
  it('is the table of TorchRL', () => {
    const [row] = rowsOf('datasets', 'available')
    const ours = [...D4RL_FILES].map(([id, file]) => [id, `${D4RL_SERVER}/${file}`])
    expect(Object.fromEntries(ours)).toEqual(row?.datasets)
    expect(D4RL_FILES.size).toBe(179)
  })
})
