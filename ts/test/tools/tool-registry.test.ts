import { describe, expect, it } from 'vitest'
import { type StandardSchema, type Tool, ToolRegistry } from '../../src/tools/index.js'
import { failing } from '../torchrl/envs/chats.js'
import { add, echo } from './tools.js'

describe('ToolRegistry', () => {
  it('knows tools by name, those that come later too', () => {
    const registry = new ToolRegistry([add])
    registry.register(echo)
    expect(registry.names).toEqual(['add', 'echo'])
    expect([registry.has('echo'), registry.has('toString')]).toEqual([true, false])
    expect(registry.get('add').name).toBe('add')
    expect(registry.specs[0]).toEqual({
      type: 'function',
      function: { name: 'add', description: 'Adds.', parameters: add.parameters },
    })
  })

  it('refuses unknown names, with the nearest', () => {
    const registry = new ToolRegistry([add])
    expect(() => registry.get('nonexistent')).toThrow(failing('UNKNOWN_NAME', /^Unknown tool: nonexistent$/))
    expect(() => registry.get('ad')).toThrow(failing('UNKNOWN_NAME', /did you mean 'add'/))
    expect(() => registry.get('x'.repeat(100_000))).toThrow(failing('UNKNOWN_NAME', /^Unknown tool: x{64}$/))
  })

  it('refuses what is no tool', () => {
    const wrong: [unknown, string][] = [
      [{ ...add, name: 'a b' }, 'MALFORMED'],
      [{ ...add, name: '' }, 'MALFORMED'],
      [{ ...add, name: 'n'.repeat(65) }, 'MALFORMED'],
      [{ ...add, description: 3 }, 'MALFORMED'],
      [{ ...add, parameters: [] }, 'MALFORMED'],
      [{ ...add, schema: {} }, 'MALFORMED'],
      [{ ...add, run: undefined }, 'MALFORMED'],
      [{ ...add, runs: () => 1 }, 'UNKNOWN_NAME'],
      [null, 'MALFORMED'],
    ]
    for (const [tool, code] of wrong) expect(() => new ToolRegistry([tool as Tool])).toThrow(failing(code))
    expect(() => new ToolRegistry([add, add])).toThrow(failing('INCOMPATIBLE', /got add twice/))
    expect(new ToolRegistry([{ ...add, name: 'n'.repeat(64) }]).names.length).toBe(1)
  })

  it('checks arguments by JSON Schema', async () => {
    const registry = new ToolRegistry([add, echo])
    expect(await registry.check('add', { a: 1, b: 2 })).toEqual({ ok: true, value: { a: 1, b: 2 } })
    expect(await registry.check('add', { a: 1 })).toEqual({
      ok: false,
      problem: expect.stringMatching(/"b"/),
    })
    expect(await registry.check('add', { a: 1, b: 'x' })).toEqual({
      ok: false,
      problem: expect.stringMatching(/^#\/b: .*number/),
    })
    expect(await registry.check('echo', { any: 1 })).toEqual({ ok: true, value: { any: 1 } })
    await expect(registry.check('none', {})).rejects.toEqual(failing('UNKNOWN_NAME'))
  })

  it('checks and changes arguments by a Standard Schema', async () => {
    const schema: StandardSchema = {
      '~standard': {
        version: 1,
        vendor: 'test',
        validate: async (value) => {
          const { of } = value as { of?: unknown }
          return typeof of === 'string'
            ? { value: { of: Number(of) } }
            : { issues: [{ message: 'of must be a text' }] }
        },
      },
    }
    const registry = new ToolRegistry([{ ...echo, schema }])
    expect(await registry.check('echo', { of: '3' })).toEqual({ ok: true, value: { of: 3 } })
    expect(await registry.check('echo', { of: 3 })).toEqual({ ok: false, problem: 'of must be a text' })
  })

  it('forgets a tool, whose name is then free', () => {
    const registry = new ToolRegistry([add])
    expect([registry.unregister('add'), registry.unregister('add'), registry.has('add')]).toEqual([
      true,
      false,
      false,
    ])
    registry.register(add)
    expect(registry.names).toEqual(['add'])
  })
})
