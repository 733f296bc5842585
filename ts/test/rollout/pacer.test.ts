import { describe, expect, it } from 'vitest'
import { Pacer } from '../../src/rollout/pacer.js'

const tick = () => new Promise((resolve) => setImmediate(resolve))

describe('Pacer', () => {
  it('lets the first pass at once and the others in rounds, in their order, with the event loop free between', async () => {
    const pacer = new Pacer()
    const order: (number | string)[] = []
    const passing = Array.from({ length: 50 }, async (_, index) => {
      await pacer.pass()
      order.push(index)
    })
    await Promise.resolve()
    const numFirst = order.length
    expect(numFirst).toBeGreaterThan(0)
    expect(numFirst).toBeLessThan(50)
    setImmediate(() => order.push('timer'))
    await Promise.all(passing)
    const numbers = order.filter((one) => one !== 'timer')
    expect(numbers).toEqual(Array.from({ length: 50 }, (_, index) => index))
    expect(order.indexOf('timer')).toBeLessThan(50)
  })

  it('starts anew once nobody waits', async () => {
    const pacer = new Pacer()
    for (let round = 0; round < 3; round++) {
      expect(pacer.pass()).toBeUndefined()
      await tick()
      await tick()
    }
    await Promise.all(Array.from({ length: 40 }, () => pacer.pass()))
    await tick()
    await tick()
    expect(pacer.pass()).toBeUndefined()
  })
})
