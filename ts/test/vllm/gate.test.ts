import { describe, expect, it } from 'vitest'
import { GATE_QUEUE_LENGTH_MAX, Gate } from '../../src/vllm/gate.js'

/** Records the requests that entered. */
function enter(gate: Gate, name: string, inside: string[]) {
  const ticket = gate.enter()
  if (ticket.ready) void ticket.ready.then(() => inside.push(name))
  else inside.push(name)
  return ticket
}

describe('Gate', () => {
  it('lets in as many as there are places, then the next in line', async () => {
    const [gate, inside] = [new Gate(2), [] as string[]]
    const tickets = ['a', 'b', 'c', 'd'].map((name) => enter(gate, name, inside))
    await Promise.resolve()
    expect(inside).toEqual(['a', 'b'])
    tickets[1]?.leave()
    tickets[1]?.leave()
    await Promise.resolve()
    expect(inside).toEqual(['a', 'b', 'c'])
  })

  it('passes over who has left the line', async () => {
    const [gate, inside] = [new Gate(1), [] as string[]]
    const [first, second] = ['a', 'b', 'c'].map((name) => enter(gate, name, inside))
    second?.leave()
    first?.leave()
    await Promise.resolve()
    expect(inside).toEqual(['a', 'c'])
  })

  it('bounds the line', () => {
    const gate = new Gate(1)
    gate.enter()
    const tickets = Array.from({ length: GATE_QUEUE_LENGTH_MAX }, () => gate.enter())
    expect(() => gate.enter()).toThrow(expect.objectContaining({ code: 'LIMIT_EXCEEDED' }))
    tickets[0]?.leave()
    gate.enter()
  })
})
