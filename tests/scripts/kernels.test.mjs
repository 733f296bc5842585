/** Compiled kernels in a file, and the C library that a program needs. */

import assert from 'node:assert/strict'
import { test } from 'node:test'
import { checkGlibc, glibcOf } from '../../scripts/device-bundle.mjs'
import { checkKernels, kernelsIn } from '../../scripts/kernels.mjs'

const program = (...texts) => Buffer.from(`\x7fELF\0${texts.join('\0')}\0\xff`, 'latin1')

test('kernels are found by their mark', () => {
  assert.equal(kernelsIn(program('a', 'fulmar kernels 0123456789abcdef\nPU\xed\x55')), '0123456789abcdef')
  assert.equal(kernelsIn(program('fulmar kernels ', 'fulmar kernels 0123')), undefined)
  assert.equal(kernelsIn(Buffer.alloc(0)), undefined)
})

const addon = (name, stamp) => ({ name, bytes: program(stamp ? `fulmar kernels ${stamp}\n` : '') })
const STAMP = '0123456789abcdef'

test('a release is refused if an addon has no kernels, or others', () => {
  const linux = addon('fulmar.linux-x64-gnu.node', STAMP)
  const windows = addon('fulmar.win32-x64-msvc.node')
  assert.throws(
    () => checkKernels([linux, windows], true),
    /fulmar.win32-x64-msvc.node must hold the kernels of GPUs: cargo xtask kernels/,
  )
  const other = addon('fulmar.linux-arm64-gnu.node', STAMP.replace('0', 'f'))
  assert.throws(() => checkKernels([linux, other], true), /all addons must hold the same kernels/)
})

test('a release needs no kernels for macOS', () => {
  const addons = [addon('fulmar.darwin-arm64.node'), addon('fulmar.linux-x64-gnu.node', STAMP)]
  assert.equal(checkKernels(addons, true), `kernels of GPUs: ${STAMP} in fulmar.linux-x64-gnu.node`)
})

test('a pack for tests says that it has no kernels', () => {
  assert.match(checkKernels([addon('fulmar.linux-x64-gnu.node')], false), /^NO KERNELS: .* is for tests only/)
})

test('the newest glibc that a program names is the one that it needs', () => {
  assert.deepEqual(glibcOf(program('GLIBC_2.4', 'GLIBC_2.34', 'GLIBC_2.17')), [2, 34])
  assert.deepEqual(glibcOf(program('none')), [0, 0])
})

test('a program for a newer glibc than 2.36 is refused', () => {
  checkGlibc(program('GLIBC_2.36', 'GLIBC_2.2.5'))
  for (const version of ['2.37', '3.0'])
    assert.throws(() => checkGlibc(program(`GLIBC_${version}`)), new RegExp(`it needs ${version}`))
})
