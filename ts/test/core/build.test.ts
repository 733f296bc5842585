import { readFileSync } from 'node:fs'
import { describe, expect, it } from 'vitest'
import { describeBuild } from '../../src/core/build.js'

describe('describeBuild', () => {
  it('names the backend that this run was asked for', () => {
    expect(describeBuild().backend).toBe(process.env.FULMAR_TEST_BACKEND)
  })

  it('has the version of the package', () => {
    const manifest = JSON.parse(readFileSync(new URL('../../../package.json', import.meta.url), 'utf8'))
    expect(describeBuild().version).toBe(manifest.version)
  })

  it('lists the plain lane first and counts at least one thread', () => {
    const { lanes, threads } = describeBuild()
    expect(lanes[0]).toBe('scalar')
    expect(threads).toBeGreaterThanOrEqual(1)
  })
})
