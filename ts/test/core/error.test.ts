import { readdirSync, readFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { describe, expect, it } from 'vitest'
import { call, callAsync, ERROR_CODES, FulmarError } from '../../src/core/error.js'
import { checkTypedArray, Rng } from '../../src/core/index.js'
import { raw } from '../../src/native/index.js'
import { GRPOLoss } from '../../src/objective/index.js'
import { LazyTensorStorage, ReplayBuffer, Sampler } from '../../src/replay/index.js'
import { checkTrainConfig } from '../../src/train/index.js'
import { numbered } from '../replay/items.js'

function failed(body: () => unknown): FulmarError {
  try {
    body()
  } catch (error) {
    if (error instanceof FulmarError) return error
  }
  throw new Error('it must fail')
}

const partsOf = ({ argument, rule, value }: FulmarError) => [argument, rule, value]

describe('FulmarError', () => {
  it('has the argument, the rule and the value of its sentence as fields, whoever made it', () => {
    const config = (json: object) => partsOf(failed(() => checkTrainConfig(json)))
    expect(config({ grpo: { groupSize: 0 } })).toEqual(['config.grpo.groupSize', 'must be >= 1', '0'])
    expect(config({ seed: 'x' })).toEqual([
      'config.seed',
      expect.stringMatching(/^must be an integer/),
      '"x"',
    ])
    expect(config({ grpo: { groupsize: 8 } })).toEqual([
      'config.grpo.groupsize',
      'must be a known key',
      undefined,
    ])
    const preset = failed(() => new GRPOLoss({ preset: 'dr_grpo' as 'grpo' }))
    expect(partsOf(preset)).toEqual([
      'GRPOLoss.preset',
      expect.stringMatching(/^must be one of grpo, /),
      '"dr_grpo"',
    ])
    expect(preset.cause).toBeInstanceOf(Error)
    expect(partsOf(failed(() => Rng.fromSeed(-1)))).toEqual(['seed', expect.stringMatching(/^must be/), '-1'])
    expect(partsOf(failed(() => checkTypedArray('ids', [1, 2], Uint32Array)))).toEqual([
      'ids',
      'must be a Uint32Array',
      'an array of 2',
    ])
  })

  it('splits the sentences that TypeScript wrote as the core splits its own', () => {
    const path = fileURLToPath(new URL('../../../tests/golden/core/sentences.json', import.meta.url))
    const rows: [string, (string | null)[] | null][] = JSON.parse(readFileSync(path, 'utf8'))
    expect(rows.length).toBeGreaterThan(10)
    for (const [sentence, parts] of rows) {
      const wanted = (parts ?? [null, null, null]).map((part) => part ?? undefined)
      expect(partsOf(new FulmarError('MALFORMED', sentence)), sentence).toEqual(wanted)
    }
  })

  it('has the parts that its maker gave, whatever the message says', () => {
    const given = { argument: 'topP', rule: 'must be at most 1', value: '2' }
    expect(partsOf(new FulmarError('OUT_OF_RANGE', 'seed must be >= 0: got -1', given))).toEqual(
      Object.values(given),
    )
    const bare = new FulmarError('IO', 'seed must be >= 0: got -1', { argument: 'disk' })
    expect(partsOf(bare)).toEqual(['disk', undefined, undefined])
  })

  it('takes values of several lines whole, and has no fields where a sentence is not of that form', () => {
    const several = new FulmarError('MALFORMED', 'text must be JSON: got {\n: got "x"\n}')
    expect(partsOf(several)).toEqual(['text', 'must be JSON', '{\n: got "x"\n}'])
    expect(partsOf(new FulmarError('ABORTED', 'The call was aborted.'))).toEqual([
      undefined,
      undefined,
      undefined,
    ])
    expect(partsOf(new FulmarError('USER_CODE', 'you must not: got 7'))).toEqual([
      undefined,
      undefined,
      undefined,
    ])
    const long = new FulmarError('MALFORMED', `${'x '.repeat(1_000_000)}must`)
    expect(partsOf(long)).toEqual([undefined, undefined, undefined])
  })

  it('knows exactly the codes of the core, in its order, and two of its own', () => {
    const own = ['ABORTED', 'TIMEOUT']
    expect(ERROR_CODES).toEqual([...raw.errorCodes(), ...own])
  })

  it('carries name, code, sentence and cause', () => {
    const cause = new Error('below')
    const error = new FulmarError('IO', 'disk must have room: it is full', { cause })
    expect(error).toMatchObject({
      name: 'FulmarError',
      code: 'IO',
      message: 'disk must have room: it is full',
      cause,
    })
    expect(error).toBeInstanceOf(Error)
  })

  it('shows the value: no message of this package has "got" before "none", "others", "less" or "more"', () => {
    const source = fileURLToPath(new URL('../../src/', import.meta.url))
    const files = readdirSync(source, { recursive: true, encoding: 'utf8' }).filter((name) =>
      name.endsWith('.ts'),
    )
    const bare = files.filter((name) =>
      /\bgot (none|others|less|more)\b/.test(readFileSync(source + name, 'utf8')),
    )
    expect(files.length).toBeGreaterThan(300)
    expect(bare).toEqual([])
  })
})

describe('call', () => {
  it('keeps the code and the sentence of the core, with its error as cause', () => {
    const failing = () => call(() => new raw.Rng(-1))
    expect(failing).toThrow(FulmarError)
    expect(failing).toThrow(expect.objectContaining({ code: 'OUT_OF_RANGE', cause: expect.any(Error) }))
  })

  it('takes the parts from the fields that the core gave, and keeps the cause of its error', () => {
    const thrown = Object.assign(new Error('in words'), {
      code: 'IO',
      argument: 'disk',
      rule: 'must turn',
      value: '0',
    })
    const error = failed(() => call(() => throwing(thrown)))
    expect(partsOf(error)).toEqual(['disk', 'must turn', '0'])
    const ofCore = failed(() => call(() => new raw.Rng(-1)))
    expect(ofCore.cause).toMatchObject({ argument: 'seed', rule: ofCore.rule, value: '-1' })
  })

  it('has as cause what the core met in a dependency', () => {
    const error = failed(() => call(() => raw.Ledger.fromJson('{')))
    expect(error).toMatchObject({ code: 'MALFORMED', argument: 'ledger JSON' })
    expect(error.cause).toMatchObject({ message: expect.stringMatching(/^EOF while parsing/) })
    expect(error.cause).not.toHaveProperty('code')
  })

  // The edge module has no buffers.
  it.skipIf(process.env.FULMAR_TEST_BACKEND === 'edge')(
    'has as cause what a function of the caller threw, the object itself',
    () => {
      const refusing = (thrown: unknown) => {
        const sampler = Sampler.from({
          check: () => {
            throw thrown
          },
          extend: () => {},
          sample: () => ({ rows: [0] }),
          clear: () => {},
        })
        const buffer = new ReplayBuffer({ storage: new LazyTensorStorage(2), sampler })
        return failed(() => buffer.extend(numbered(1)))
      }
      const quota: Error = new RangeError('quota used up')
      quota.cause = quota
      expect(refusing(quota)).toMatchObject({
        code: 'USER_CODE',
        message: 'quota used up',
        argument: undefined,
      })
      expect(refusing(quota).cause).toBe(quota)
      expect(refusing('in words').cause).toBe('in words')
    },
  )

  it('calls an array that cannot be made OUT_OF_MEMORY, and another range MALFORMED', () => {
    const large = failed(() => call(() => new ArrayBuffer(2 ** 53 - 1)))
    expect(large).toMatchObject({ code: 'OUT_OF_MEMORY', cause: expect.any(RangeError) })
    expect(failed(() => call(() => new Float64Array(2 ** 53 - 1))).code).toBe('OUT_OF_MEMORY')
    expect(failed(() => call(() => (1).toFixed(101))).code).toBe('MALFORMED')
  })

  it('calls a trap without a panic OUT_OF_MEMORY, and one of another kind PANIC', () => {
    const trap = (message: string) =>
      failed(() => call(() => throwing(Object.assign(new Error(message), { name: 'RuntimeError' }))))
    expect(trap('unreachable')).toMatchObject({ code: 'OUT_OF_MEMORY', argument: undefined })
    expect(trap('memory access out of bounds').code).toBe('PANIC')
  })

  it('passes a FulmarError on as it is', () => {
    const error = new FulmarError('ABORTED', 'stopped')
    expect(() => call(() => throwing(error))).toThrow(error)
  })

  it('calls what the boundary itself refuses MALFORMED', () => {
    const words: unknown = 'not words'
    expect(() => call(() => raw.Rng.fromState(words as BigUint64Array))).toThrow(
      expect.objectContaining({ code: expect.stringMatching(/^(MALFORMED|SHAPE_MISMATCH)$/) }),
    )
  })
})

describe('callAsync', () => {
  it('rejects with the code where the body throws at once and where it throws later', async () => {
    const now = callAsync(() => new raw.Rng(-1))
    await expect(now).rejects.toMatchObject({ name: 'FulmarError', code: 'OUT_OF_RANGE' })
    const later = callAsync(async () => throwing(new FulmarError('EMPTY', 'batch must not be empty')))
    await expect(later).rejects.toMatchObject({ code: 'EMPTY' })
  })

  it('resolves with an answer that comes at once', async () => {
    await expect(callAsync(() => 3)).resolves.toBe(3)
  })
})

function throwing(error: Error): never {
  throw error
}
