import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import {
  createRenderer,
  extendPrompt,
  Ledger,
  type LedgerSample,
  ORIGINS,
  type Turn,
} from '../../src/chat/index.js'
import { CharTokenizer } from '../../src/tokenizer/index.js'

const failing = (code: string) => expect.objectContaining({ name: 'FulmarError', code })

/** A turn whose tokens all have the log-probability `-0.5` and, as they were drawn, `-0.25`. */
function turn(promptIds: number[], completionIds: number[], policyVersion: Turn['policyVersion'] = 0): Turn {
  return {
    promptIds: Uint32Array.from(promptIds),
    completionIds: Uint32Array.from(completionIds),
    logProbs: new Float32Array(completionIds.length).fill(-0.5),
    sampledLogProbs: new Float32Array(completionIds.length).fill(-0.25),
    policyVersion,
  }
}

function recorded(...turns: Turn[]): Ledger {
  const ledger = new Ledger()
  for (const each of turns) ledger.recordTurn(each)
  return ledger
}

const maskOf = ({ mask }: LedgerSample) => Array.from(mask, (bit) => (bit === 1 ? 'T' : 'F')).join('')

describe('Ledger', () => {
  it('makes one sample of turns that extend each other', () => {
    using ledger = recorded(
      turn([1, 2], [4], 3),
      turn([1, 2, 4, 8], [5, 6], 3),
      turn([1, 2, 4, 8, 5, 6, 9], [7], 4),
    )
    const [sample, ...others] = ledger.trainingSamples(-0.5)
    if (!sample) throw new Error('no sample')
    expect(others).toEqual([])
    expect([...sample.ids]).toEqual([1, 2, 4, 8, 5, 6, 9, 7])
    expect(maskOf(sample)).toBe('FFTFTTFT')
    expect([...sample.logProbs]).toEqual([0, 0, -0.5, 0, -0.5, -0.5, 0, -0.5])
    expect([...sample.sampledLogProbs]).toEqual([0, 0, -0.25, 0, -0.25, -0.25, 0, -0.25])
    expect([...sample.advantages]).toEqual([0, 0, -0.5, 0, -0.5, -0.5, 0, -0.5])
    expect([...sample.versions]).toEqual([0, 0, 3, 0, 3, 3, 0, 4])
    expect([sample.turnId, sample.minPolicyVersion, sample.maxPolicyVersion]).toEqual([0, 3, 4])
    expect([ledger.numTurns, ledger.numTokens, ...ledger.pathIds()]).toEqual([3, 8, ...sample.ids])
  })

  it('splits a compaction in two samples', () => {
    using ledger = recorded(
      turn([1], [11], 5),
      turn([1, 11, 21], [12], 6),
      turn([1, 11, 21, 12, 22], [13], 6),
      { ...turn([2], [14], 6), branchReason: 'compaction' },
      turn([2, 14, 24], [15], 7),
    )
    const samples = ledger.samples()
    expect(samples.map(({ turnId }) => turnId)).toEqual([0, 3])
    expect(samples.map(maskOf)).toEqual(['FTFTFT', 'FTFT'])
    expect(samples.map((sample) => [sample.minPolicyVersion, sample.maxPolicyVersion])).toEqual([
      [5, 6],
      [6, 7],
    ])
    expect(ledger.forks()).toEqual([{ branch: 0, position: 0, reason: 'compaction' }])
  })

  it('forks where a prompt departs from what was sampled, and trains nothing twice', () => {
    using ledger = recorded(turn([1, 2], [4, 5, 6]))
    expect(ledger.recordTurn(turn([1, 2, 4, 7], [8]))).toEqual({
      turn: 1,
      branch: 1,
      fork: { branch: 0, position: 3, reason: 'history_edit' },
    })
    expect(ledger.recordTurn(turn([1, 2], [4]))).toMatchObject({ branch: 2, fork: { reason: 'resample' } })
    expect(ledger.samples().map(maskOf)).toEqual(['FFTTT', 'FFFFT', 'FFT'])
    expect(ledger.numTokens).toBe(8)
  })

  it('takes versions for each token and as a range', () => {
    using ledger = recorded(turn([1], [2, 3], Uint32Array.of(7, 9)))
    ledger.recordTurn(turn([1, 2, 3], [4], { min: 4, max: 11 }))
    const [sample] = ledger.samples()
    expect(sample && [...sample.versions]).toEqual([0, 7, 9, 4])
    expect([sample?.minPolicyVersion, sample?.maxPolicyVersion]).toEqual([4, 11])
    expect(ledger.segments().map(({ policyVersion }) => policyVersion?.max)).toEqual([undefined, 7, 9, 11])
  })

  it('keeps what a renderer says of a conversation', () => {
    using tokenizer = new CharTokenizer()
    using renderer = createRenderer(tokenizer, { name: 'chatml' })
    using ledger = new Ledger()
    const first = renderer.render([{ role: 'user', content: 'Q' }], { addGenerationPrompt: true })
    const sampled = turn([], [34, 98])
    const { ids, origins: firstOrigins, messageIndices: firstIndices } = first
    ledger.recordTurn({ ...sampled, promptIds: ids, origins: firstOrigins, messageIndices: firstIndices })
    const bridge = renderer.bridge(first.ids, sampled.completionIds, [{ role: 'tool', content: 'R' }])
    if (!bridge.ok) throw new Error(bridge.reason)
    const { origins, messageIndices } = bridge.rendered
    const promptIds = extendPrompt(first.ids, sampled.completionIds, bridge)
    ledger.recordTurn({ ...sampled, promptIds, origins, messageIndices, messageOffset: 2 })
    const runs = ledger.segments().map((run) => `${run.turn} ${run.origin} ${run.messageIndex} ${run.length}`)
    expect(runs).toEqual([
      ...['0 template 0 6', '0 user 0 1', '0 template 0 2', '0 template -1 11', '0 sampled 1 2'],
      ...[
        '1 template -1 1',
        '1 template 2 6',
        '1 tool 2 1',
        '1 template 2 2',
        '1 template -1 11',
        '1 sampled 3 2',
      ],
    ])
    expect(ledger.samples()).toHaveLength(1)
    expect(ORIGINS).toContain(ledger.segments()[0]?.origin)
  })

  it('refuses an empty completion beside others and gives no sample of one alone', () => {
    using alone = recorded(turn([1, 2, 4, 8], []))
    expect(alone.samples()).toEqual([])
    expect(() => alone.recordTurn(turn([1, 2, 4, 8], [5]))).toThrow(failing('EMPTY'))
    using ledger = recorded(turn([1, 2], [4]))
    const message = 'every turn of several must hold a sampled token: got no completion in turn 1'
    expect(() => ledger.recordTurn(turn([1, 2, 4, 8], []))).toThrow(
      expect.objectContaining({ code: 'EMPTY', message }),
    )
  })

  it('refuses a missing or infinite advantage', () => {
    using ledger = recorded(turn([1], [2]))
    expect(() => ledger.trainingSamples(null)).toThrow(failing('EMPTY'))
    expect(() => ledger.trainingSamples(Number.NaN)).toThrow(failing('NON_FINITE'))
  })

  it('refuses bad turns by code and is unchanged', () => {
    using ledger = recorded(turn([1, 2], [4]))
    const before = ledger.toJSON()
    const good = turn([1, 2, 4, 8], [5])
    const wrong: [string, object][] = [
      ['EMPTY', { promptIds: new Uint32Array(0) }],
      ['SHAPE_MISMATCH', { logProbs: new Float32Array(2) }],
      ['SHAPE_MISMATCH', { sampledLogProbs: new Float32Array(0) }],
      ['SHAPE_MISMATCH', { policyVersion: Uint32Array.of(1, 2) }],
      ['SHAPE_MISMATCH', { origins: new Uint8Array(3), messageIndices: new Int32Array(4) }],
      ['NON_FINITE', { logProbs: Float32Array.of(Number.NaN) }],
      ['NON_FINITE', { sampledLogProbs: Float32Array.of(Number.NEGATIVE_INFINITY) }],
      ['OUT_OF_RANGE', { policyVersion: { min: 2, max: 1 } }],
      ['OUT_OF_RANGE', { origins: new Uint8Array(4).fill(8), messageIndices: new Int32Array(4) }],
      ['OUT_OF_RANGE', { origins: new Uint8Array(4), messageIndices: new Int32Array(4).fill(-2) }],
      ['MALFORMED', { origins: new Uint8Array(4) }],
      ['MALFORMED', { policyVersion: -1 }],
      ['MALFORMED', { policyVersion: undefined }],
      ['MALFORMED', { promptIds: [1, 2, 4, 8] }],
      ['MALFORMED', { logProbs: Float64Array.of(-1) }],
      ['UNKNOWN_NAME', { branchReason: 'whim' }],
      ['UNKNOWN_NAME', { completion: [] }],
    ]
    for (const [code, change] of wrong) {
      expect(() => ledger.recordTurn({ ...good, ...change }), JSON.stringify(change)).toThrow(failing(code))
      expect(ledger.toJSON()).toEqual(before)
    }
    expect(ledger.recordTurn(good).fork).toBeNull()
  })

  it('goes to JSON and back bit for bit, and goes on', () => {
    const logProbs = Float32Array.of(-0.1, -1e-45, -3.4028234663852886e38)
    using ledger = recorded({ ...turn([1, 2], [4, 5, 6]), logProbs }, turn([1, 9], [7], 2))
    const json = JSON.stringify(ledger)
    using read = Ledger.fromJSON(json)
    expect(read.samples()).toEqual(ledger.samples())
    expect(read.samples()[0]?.logProbs.subarray(2)).toEqual(logProbs)
    expect([read, ledger].map((each) => each.recordTurn(turn([1, 9, 7, 3], [1])).branch)).toEqual([1, 1])
    expect(JSON.stringify(read)).toBe(JSON.stringify(ledger))
    expect(() => Ledger.fromJSON({ ...ledger.toJSON(), version: 2 })).toThrow(failing('INCOMPATIBLE'))
    expect(() => Ledger.fromJSON({ ...ledger.toJSON(), ids: [1] })).toThrow(failing('MALFORMED'))
    for (const value of ['', '{}', null, undefined]) {
      expect(() => Ledger.fromJSON(value)).toThrow(failing('MALFORMED'))
    }
  })

  it('goes to bytes and back, reads those of version 1, and refuses changed ones by code', () => {
    const folder = join(import.meta.dirname, '../../../tests/golden/chat')
    const stored = new Uint8Array(readFileSync(join(folder, 'ledger-v1.bin')))
    using read = Ledger.fromBytes(stored)
    using same = Ledger.fromJSON(readFileSync(join(folder, 'ledger-v1.json'), 'utf8'))
    expect(read.toJSON()).toEqual(same.toJSON())
    expect(read.toBytes()).toEqual(stored)
    expect(read.samples()).toEqual(same.samples())
    expect(() => Ledger.fromBytes(stored.subarray(1))).toThrow(failing('CORRUPT'))
    expect(() => Ledger.fromBytes(stored.map((byte, at) => (at === 99 ? byte ^ 4 : byte)))).toThrow(
      failing('CORRUPT'),
    )
    // "\x89FLedger", version 2, and the checksum of both.
    const later = [...stored.subarray(0, 8), 2, 0, 0, 0, 0x90, 0x5a, 0xa6, 0x41]
    expect(() => Ledger.fromBytes(Uint8Array.from(later))).toThrow(failing('INCOMPATIBLE'))
    expect(() => Ledger.fromBytes([...stored] as never)).toThrow(failing('MALFORMED'))
  })

  it('gives a branch the reason of a refused bridge', () => {
    const reasonOf = (change: Partial<Turn>) => {
      using ledger = recorded(turn([1, 2], [4]), { ...turn([1, 9], [5]), ...change })
      return ledger.forks()[0]?.reason
    }
    expect(reasonOf({ bridgeRefusal: 'opaque_template' })).toBe('opaque')
    expect(reasonOf({ bridgeRefusal: 'user_query_under_tool_cycle' })).toBe('retention')
    expect(reasonOf({ bridgeRefusal: 'empty_extension' })).toBe('bridge_refused')
    expect(reasonOf({ bridgeRefusal: 'over_length', branchReason: 'compaction' })).toBe('compaction')
  })

  it('says that it is closed after its disposal, and samples stay', () => {
    const ledger = recorded(turn([1], [2]))
    const [sample] = ledger.samples()
    ledger[Symbol.dispose]()
    expect(() => ledger.samples()).toThrow(failing('CLOSED'))
    expect(sample && [...sample.ids]).toEqual([1, 2])
  })
})
