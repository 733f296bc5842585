import { describe, expect, it } from 'vitest'
import { GEN_DGRL_FILES, GEN_DGRL_SERVER } from '../../src/dataset/gen-dgrl-files.js'
import { rowsOf } from './golden-rows.js'

describe('GEN_DGRL_FILES', () => {
  const [row] = rowsOf('datasets', 'GenDGRL_urls')

  it('is the table of TorchRL', () => {
    const ours = [...GEN_DGRL_FILES].map(([id, { path }]) => [id, `${GEN_DGRL_SERVER}/${path}`])
    expect(Object.fromEntries(ours)).toEqual(row?.urls)
    expect(GEN_DGRL_FILES.size).toBe(128)
  })

  it('has the nominal lengths of TorchRL', () => {
    for (const [id, { numRowsMax }] of GEN_DGRL_FILES)
      expect(numRowsMax, id).toBe(row?.nominal[id.slice(id.indexOf('-') + 1)])
  })
})
