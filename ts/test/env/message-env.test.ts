import { describe, expect, it } from 'vitest'
import { checkInitOutput, checkStepOutput } from '../../src/env/index.js'

const failing = (code: string, message: RegExp) =>
  expect.objectContaining({ code, message: expect.stringMatching(message) })

describe('checkInitOutput', () => {
  it('accepts assistant messages as worked examples and fills in no tools', () => {
    const initPromptMessages = [
      { role: 'user', content: '1+1?' },
      { role: 'assistant', content: '2' },
      { role: 'user', content: '2+2?' },
    ]
    expect(checkInitOutput({ initPromptMessages })).toEqual({ initPromptMessages, tools: [] })
  })

  it('refuses no messages, messages without a role, and unknown keys', () => {
    expect(() => checkInitOutput({ initPromptMessages: [] })).toThrow(failing('EMPTY', /must hold a message/))
    const roleless: unknown = { initPromptMessages: [{ content: 'Hi' }] }
    expect(() => checkInitOutput(Object(roleless))).toThrow(
      failing('MALFORMED', /initPromptMessages\[0\] must have a role/),
    )
    expect(() => checkInitOutput(Object({ initPromptMessages: 'Hi' }))).toThrow(
      failing('MALFORMED', /list of messages: got "Hi"/),
    )
    expect(() => checkInitOutput(Object({ initPromptMesages: [] }))).toThrow(
      failing('UNKNOWN_NAME', /did you mean/),
    )
  })
})

describe('checkStepOutput', () => {
  it('fills in the defaults', () => {
    expect(checkStepOutput({})).toEqual({ envMessages: [], done: false, envRewards: {} })
  })

  it('refuses a message that speaks for the policy', () => {
    const envMessages = [{ role: 'assistant', content: 'I am the policy' }]
    expect(() => checkStepOutput({ envMessages })).toThrow(
      failing('MALFORMED', /must not hold messages of the policy/),
    )
  })

  it('refuses a reward that is not finite, by its name', () => {
    const envRewards = { speed: Number.NaN }
    expect(() => checkStepOutput({ envRewards })).toThrow(
      failing('NON_FINITE', /envRewards.speed must be finite: got NaN/),
    )
  })

  it('refuses what is no object', () => {
    expect(() => checkStepOutput(Object('done'))).toThrow(expect.objectContaining({ code: 'UNKNOWN_NAME' }))
    const nothing: unknown = undefined
    expect(() => Reflect.apply(checkStepOutput, undefined, [nothing])).toThrow(
      failing('MALFORMED', /got undefined/),
    )
  })
})
