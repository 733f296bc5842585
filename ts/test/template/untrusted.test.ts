import { existsSync } from 'node:fs'
import { describe, expect, it } from 'vitest'
import { renderUntrusted, TemplateRegistry } from '../../src/template/index.js'
import { has } from '../needs.js'
import { BOMBS } from './bombs.js'

const MIB = 2 ** 20
const MESSAGES = [
  { role: 'user', content: 'Hi 🐈' },
  { role: 'assistant', content: 'Yo!' },
]
/** Time enough on a busy machine, where the time is not what is tested. */
const PATIENT = { timeoutMs: 30_000 }
const failing = (code: string) => expect.objectContaining({ name: 'FulmarError', code })

/** The sandbox is built with the WebAssembly module: before that, and where it cannot be built, there is nothing to test. */
const isBuilt = has(
  'wasm/fulmar_sandbox.wasm',
  existsSync(new URL('../../../wasm/fulmar_sandbox.wasm', import.meta.url)),
)

describe.runIf(isBuilt)('renderUntrusted', () => {
  it('renders what the trusted path renders, spans included', async () => {
    const names = TemplateRegistry.builtin.names
    const input = {
      messages: MESSAGES,
      specialTokens: { bos_token: '<s>', eos_token: '</s>' },
      now: new Date(0),
    }
    for (const name of names) {
      using template = TemplateRegistry.builtin.get(name)
      const source = TemplateRegistry.builtin.source(name)
      expect(await renderUntrusted(source, input, PATIENT), name).toEqual(template.render(input))
    }
  })

  it('fails as the trusted path fails', async () => {
    await expect(renderUntrusted('{{ raise_exception("no") }}', {}, PATIENT)).rejects.toEqual(
      expect.objectContaining({ code: 'TEMPLATE_RAISED', message: 'no' }),
    )
    await expect(renderUntrusted('{% if %}', {}, PATIENT)).rejects.toEqual(failing('MALFORMED'))
    await expect(renderUntrusted('{{ a.b }}', {}, PATIENT)).rejects.toEqual(failing('UNKNOWN_NAME'))
    await expect(renderUntrusted(7 as unknown as string)).rejects.toEqual(failing('MALFORMED'))
    await expect(renderUntrusted('\uD83D')).rejects.toEqual(failing('MALFORMED'))
  })

  it('keeps every character, a byte order mark in front included', async () => {
    const text = '\uFEFFa\0\u2028🦞'
    const source = '{% generation %}{{ messages[0].content }}{% endgeneration %}'
    const rendered = await renderUntrusted(
      source,
      { messages: [{ role: 'assistant', content: text }] },
      PATIENT,
    )
    expect(rendered).toEqual({ text, assistantSpans: Uint32Array.of(0, text.length) })
  })

  it('holds each limit that it is given', async () => {
    const loop = '{% for i in range(1000) %}x{% endfor %}'
    expect((await renderUntrusted(loop, {}, { ...PATIENT, outputBytes: 1000 })).text).toHaveLength(1000)
    await expect(renderUntrusted(loop, {}, { ...PATIENT, outputBytes: 999 })).rejects.toEqual(
      failing('LIMIT_EXCEEDED'),
    )
    await expect(renderUntrusted(loop, {}, { ...PATIENT, steps: 1000 })).rejects.toEqual(
      failing('LIMIT_EXCEEDED'),
    )
    const large = "{{ ('x' * 9000000) | length }}"
    expect((await renderUntrusted(large, {}, PATIENT)).text).toBe('9000000')
    await expect(renderUntrusted(large, {}, { ...PATIENT, memoryBytes: 8 * MIB })).rejects.toEqual(
      failing('LIMIT_EXCEEDED'),
    )
    const slow = BOMBS['nested loops']?.source ?? ''
    await expect(renderUntrusted(slow, {}, { timeoutMs: 20, steps: 200_000_000 })).rejects.toEqual(
      failing('TIMEOUT'),
    )
  })

  it('lets honest templates wait for their turn while many bombs run', async () => {
    const bomb = BOMBS['nested loops']?.source ?? ''
    const bombs = Array.from({ length: 8 }, () =>
      renderUntrusted(bomb, {}, { timeoutMs: 20, steps: 200_000_000 }),
    )
    const honest = Array.from({ length: 8 }, () =>
      renderUntrusted('{{ messages[0].content }}', { messages: MESSAGES }, PATIENT),
    )
    for (const answer of await Promise.allSettled(bombs)) expect(answer.status).toBe('rejected')
    expect(await Promise.all(honest)).toEqual(Array.from({ length: 8 }, () => ({ text: 'Hi 🐈' })))
  })

  it('refuses limits out of their range', async () => {
    for (const options of [
      { timeoutMs: 0 },
      { memoryBytes: 65 * MIB },
      { memoryBytes: 8 * MIB + 1 },
      { steps: 0.5 },
    ]) {
      await expect(renderUntrusted('', {}, options)).rejects.toEqual(failing('OUT_OF_RANGE'))
    }
    await expect(renderUntrusted('', {}, { step: 1 } as object)).rejects.toEqual(failing('UNKNOWN_NAME'))
  })

  it('leaves the event loop free while a template takes its time', async () => {
    let ticks = 0
    const timer = setInterval(() => {
      ticks += 1
    }, 5)
    await expect(
      renderUntrusted(BOMBS['nested loops']?.source ?? '', {}, { timeoutMs: 200, steps: 200_000_000 }),
    ).rejects.toEqual(failing('TIMEOUT'))
    clearInterval(timer)
    expect(ticks).toBeGreaterThan(2)
  })
})

describe.runIf(isBuilt)('a bomb in the sandbox', () => {
  const honest = () => renderUntrusted('{{ messages[0].content }}', { messages: MESSAGES }, PATIENT)

  it('comes in 24 kinds', () => {
    expect(Object.keys(BOMBS)).toHaveLength(24)
  })

  it.each(Object.entries(BOMBS))(
    'is refused, and the next template renders: %s',
    async (_, { source, input }) => {
      await expect(renderUntrusted(source, input, { timeoutMs: 100 })).rejects.toEqual(
        expect.objectContaining({
          name: 'FulmarError',
          code: expect.stringMatching(/^(LIMIT_EXCEEDED|TIMEOUT|INCOMPATIBLE|MALFORMED)$/),
        }),
      )
      expect(await honest()).toEqual({ text: 'Hi 🐈' })
    },
  )

  it('leaves no memory behind', async () => {
    await honest()
    const before = process.memoryUsage().rss
    const bomb = BOMBS['doubling by concatenation']?.source ?? ''
    for (let round = 0; round < 20; round += 1) {
      await expect(renderUntrusted(bomb, {}, PATIENT)).rejects.toEqual(failing('LIMIT_EXCEEDED'))
    }
    await Promise.all(
      Array.from({ length: 4 }, () => renderUntrusted(bomb, {}, PATIENT).catch(() => undefined)),
    )
    // Twenty instances of 64 MiB each, and four at once, would be 1.5 GiB if one of them stayed.
    expect(process.memoryUsage().rss - before).toBeLessThan(512 * MIB)
  })
})
