/** Planted faults of kernels: each is one edit, at one place. That a check finds it is the stage `cuda-emulated`. */

import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { test } from 'node:test'
import { FAULTS } from '../../scripts/cuda-faults.mjs'
import { root } from '../../scripts/steps.mjs'

test('each fault changes one place of its kernel, and has a name of its own', () => {
  for (const { name, folder, file, from, to } of FAULTS) {
    const parts = readFileSync(`${root}${folder}/${file}`, 'utf8').split(from)
    assert.equal(parts.length, 2, `${file}: ${name}`)
    assert.notEqual(from, to, name)
  }
  assert.equal(new Set(FAULTS.map(({ name }) => name)).size, FAULTS.length)
  assert.ok(FAULTS.length >= 25)
})
