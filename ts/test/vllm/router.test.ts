import { describe, expect, it } from 'vitest'
import { Router, type RouterOptions } from '../../src/vllm/index.js'
import { ROUTER_TARGETS_MAX } from '../../src/vllm/router.js'

const targets = (router: Router, count: number, context = {}) =>
  Array.from({ length: count }, () => router.reserve(context)?.target)

describe('Router', () => {
  it('goes round in order, past servers that do not serve', () => {
    const router = new Router({ numTargets: 3, strategy: 'roundRobin' })
    expect(targets(router, 7)).toEqual([0, 1, 2, 0, 1, 2, 0])
    router.setServing(1, false)
    expect(targets(router, 4)).toEqual([2, 0, 2, 0])
  })

  it('takes the least loaded, of equals the one chosen longest ago', () => {
    const router = new Router({ numTargets: 2, strategy: 'leastLoaded' })
    const places = [0, 1, 2].map(() => router.reserve())
    expect(places.map((place) => place?.target)).toEqual([0, 1, 0])
    expect(router.loads).toEqual([2, 1])
    places[0]?.release()
    places[0]?.release()
    places[2]?.release()
    expect(router.loads).toEqual([0, 1])
    expect(targets(router, 1)).toEqual([0])
    const idle = new Router({ numTargets: 4, strategy: 'leastLoaded' })
    const spread = Array.from({ length: 8 }, () => {
      const place = idle.reserve()
      place?.release()
      return place?.target
    })
    expect(spread).toEqual([0, 1, 2, 3, 0, 1, 2, 3])
  })

  it('counts what a request costs', () => {
    const router = new Router({ numTargets: 2 })
    expect(targets(router, 1, { cost: 3 })).toEqual([0])
    expect(targets(router, 3)).toEqual([1, 1, 1])
    expect(() => router.reserve({ cost: -1 })).toThrow(expect.objectContaining({ code: 'OUT_OF_RANGE' }))
  })

  it('keeps a session where it is, and moves it for good when that does not serve', () => {
    const router = new Router({ numTargets: 2 })
    const session = { sessionId: 's' }
    expect(targets(router, 3, session)).toEqual([0, 0, 0])
    expect(targets(router, 1, { sessionId: 't' })).toEqual([1])
    router.setServing(0, false)
    expect(targets(router, 1, session)).toEqual([1])
    router.setServing(0, true)
    expect(targets(router, 1, session)).toEqual([1])
  })

  it('remembers as many sessions as it may, those used last', () => {
    const router = new Router({ numTargets: 2, maxSessions: 1 })
    expect(targets(router, 1, { sessionId: 'a', cost: 9 })).toEqual([0])
    expect(targets(router, 1, { sessionId: 'b' })).toEqual([1])
    expect(targets(router, 1, { sessionId: 'a' })).toEqual([1])
  })

  it('forgets the session that was used longest ago', () => {
    const router = new Router({ numTargets: 3, maxSessions: 2 })
    const place = (sessionId: string, cost: number) => targets(router, 1, { sessionId, cost })[0]
    expect([place('a', 5), place('b', 3), place('a', 1), place('c', 1)]).toEqual([0, 1, 0, 2])
    // `a` was used after `b`, so it stays on the fullest server, and `b` is placed anew.
    expect([place('a', 1), place('b', 1)]).toEqual([0, 2])
  })

  it('avoids servers while there are others, and gives no place while none serves', () => {
    const router = new Router({ numTargets: 2 })
    expect(targets(router, 2, { avoid: new Set([0]) })).toEqual([1, 1])
    expect(targets(router, 1, { avoid: new Set([0, 1]) })).toEqual([0])
    router.setServing(0, false)
    expect(targets(router, 1, { avoid: new Set([1]) })).toEqual([1])
    router.setServing(1, false)
    expect(router.reserve()).toBeUndefined()
    expect(() => router.setServing(2, true)).toThrow(expect.objectContaining({ code: 'OUT_OF_RANGE' }))
  })

  it.each<[RouterOptions, string]>([
    [{ numTargets: 0 }, 'OUT_OF_RANGE'],
    [{ numTargets: ROUTER_TARGETS_MAX + 1 }, 'OUT_OF_RANGE'],
    [{ numTargets: 2, maxSessions: 0 }, 'OUT_OF_RANGE'],
    [{ numTargets: 2, strategy: 'random' as never }, 'UNKNOWN_NAME'],
    [{ numTargets: 2, sessions: 3 } as never, 'UNKNOWN_NAME'],
  ])('refuses %j', (options, code) => {
    expect(() => new Router(options)).toThrow(expect.objectContaining({ code }))
  })

  it('takes as many servers as there may be', () => {
    expect(new Router({ numTargets: ROUTER_TARGETS_MAX }).loads).toHaveLength(ROUTER_TARGETS_MAX)
  })
})
