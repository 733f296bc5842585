import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { Template, type TemplateInput, type TemplateOptions } from '../../src/template/index.js'
import { BOMBS } from './bombs.js'

const failing = (code: string, message?: string | RegExp) =>
  expect.objectContaining({
    name: 'FulmarError',
    code,
    ...(message !== undefined && { message: expect.stringMatching(message) }),
  })

function render(source: string, input?: TemplateInput): string {
  using template = new Template(source)
  return template.render(input).text
}

describe('Template', () => {
  it('counts spans in UTF-16 code units, so that slices of the text are what an assistant says', () => {
    using template = new Template(
      '{% for m in messages %}[{{ m.role }}🐈]{% generation %}{{ m.content }}{% endgeneration %}{% endfor %}',
    )
    expect(template.hasGeneration).toBe(true)
    const contents = ['é🦞', '𝕏', '', 'plain']
    const messages = contents.map((content) => ({ role: 'assistant', content }))
    const { text, assistantSpans = new Uint32Array() } = template.render({ messages })
    const pieces = Array.from({ length: assistantSpans.length / 2 }, (_, index) =>
      text.slice(assistantSpans[2 * index], assistantSpans[2 * index + 1]),
    )
    expect(pieces).toEqual(contents)
  })

  it('has no spans without a generation block, or where the text ends inside a message', () => {
    expect(new Template('{{ messages }}').render({ messages: [] })).toEqual({ text: '[]' })
    using template = new Template('{% generation %}{{ messages[0].content }}{% endgeneration %}|')
    const messages = [{ role: 'assistant', content: 'so' }]
    expect(template.render({ messages }).assistantSpans).toEqual(Uint32Array.of(0, 2))
    expect(template.render({ messages, continueFinalMessage: true })).toEqual({ text: 'so' })
  })

  it('keeps the form of numbers and the order of keys in JSON text', () => {
    const tools = '[{"b": 1.0, "a": -0.0, "big": 12345678901234567890, "exp": 1e20, "1": true, "0": null}]'
    expect(render('{{ tools | tojson }}', { tools })).toBe(
      '[{"b": 1.0, "a": -0.0, "big": 12345678901234567890, "exp": 1e+20, "1": true, "0": null}]',
    )
    expect(render('{{ tools }}', { tools: '[1.0, true, null, "a"]' })).toBe("[1.0, True, None, 'a']")
    // A parsed value has lost what JSON.parse loses.
    expect(render('{{ tools | tojson }}', { tools: JSON.parse('[1.0]') })).toBe('[1]')
  })

  it('brings any JSON through tojson as it was', () => {
    // JavaScript writes floats in another way than Python, so only integers are compared as text.
    const value = fc.jsonValue({ maxDepth: 3 }).filter((json) => !/\d[.e]/.test(JSON.stringify(json)))
    fc.assert(
      fc.property(value, (json) => {
        const text = render('{{ documents | tojson }}', { documents: [json] })
        expect(JSON.parse(text)).toEqual(JSON.parse(JSON.stringify([json])))
      }),
    )
  })

  it('knows the time only if it is told, and writes it as strftime does', () => {
    const source = "{{ strftime_now('%d %b %Y %H:%M:%S') }}"
    expect(render(source, { now: new Date('2024-07-26T13:14:15Z') })).toBe('26 Jul 2024 13:14:15')
    expect(() => render(source)).toThrow(failing('INCOMPATIBLE', /now must be given/))
    expect(() => render(source, { now: new Date('never') })).toThrow(failing('MALFORMED', /valid Date/))
  })

  it('gives the text of raise_exception back as it is', () => {
    const message = 'Roles must alternate: "user" – got «tool»!'
    const kwargs = { message }
    expect(() => render('{{ raise_exception(message) }}', { kwargs })).toThrow(
      expect.objectContaining({ code: 'TEMPLATE_RAISED', message }),
    )
  })

  it('drops keys of messages that are null, and lets kwargs hide special tokens', () => {
    const messages = [{ role: 'user', content: 'x', tool_calls: null }]
    expect(render('{{ messages[0].tool_calls is defined }}', { messages })).toBe('False')
    const specialTokens = { bos_token: '<s>', eos_token: '</s>' }
    const input = { messages, specialTokens, kwargs: { eos_token: '<end>' } }
    expect(render('{{ bos_token }}{{ eos_token }}{{ pad_token is defined }}', input)).toBe('<s><end>False')
  })

  it('names what is wrong with a template by its line', () => {
    expect(() => new Template('a\n{% if %}')).toThrow(failing('MALFORMED', /line 2/))
    expect(() => new Template('x'.repeat(2 ** 20 + 1))).toThrow(failing('LIMIT_EXCEEDED'))
    expect(() => render('\n\n{{ nobody.name }}')).toThrow(failing('UNKNOWN_NAME', /line 3/))
    expect(() => render("{{ 'a' + 1 }}")).toThrow(failing('INCOMPATIBLE'))
    expect(() => render("{{ ''.__class__.mro() }}")).toThrow(failing('FORBIDDEN'))
  })

  it('refuses input that is no JSON, unknown options, and text that is half a character', () => {
    expect(() => render('', { messages: '[' })).toThrow(failing('MALFORMED', /input.messages must be JSON/))
    expect(() => render('', { messages: '[]}, {"tools": [' })).toThrow(failing('MALFORMED'))
    expect(() => render('', { messages: { role: 'user' } })).toThrow(failing('MALFORMED'))
    expect(() => render('', { massages: [] } as TemplateInput)).toThrow(
      failing('UNKNOWN_NAME', /did you mean 'messages'/),
    )
    expect(() => new Template(7 as unknown as string)).toThrow(failing('MALFORMED'))
    expect(() => new Template('a\uD83D')).toThrow(failing('MALFORMED', /U\+D83D/))
    expect(() => render('', { messages: '[{"content": "\uD83D"}]' })).toThrow(failing('MALFORMED'))
    expect(() => render('', { messages: [{ role: 'user', content: '\uD83D' }] })).toThrow(
      failing('MALFORMED'),
    )
  })

  it('keeps every character of its data, a byte order mark in front included', () => {
    const text = '\uFEFF\0\u202Eabc\u2028\u0085🦞'
    expect(render('{{ messages[0].content }}', { messages: [{ role: 'user', content: text }] })).toBe(text)
  })

  it('keeps all digits of integers in JSON text', () => {
    const big = '123456789012345678901234567890123456789012345'
    const input = { kwargs: `{"big":${big},"same":${big}}`, messages: `[{"role":"user","id":-${big}}]` }
    expect(render('{{ big }} {{ big | string }} {{ big == same }} {{ big | int }}', input)).toBe(
      `${big} ${big} True ${big}`,
    )
    expect(render('{{ messages | tojson }}', input)).toBe(`[{"role": "user", "id": -${big}}]`)
    expect(() => render('{{ big + 1 }}', input)).toThrow(failing('OUT_OF_RANGE', /128 bits/))
  })

  it('fails where Python cannot order values, and refuses to escape by itself', () => {
    for (const source of [
      "{{ 1 < 'a' }}",
      '{{ none >= 1 }}',
      "{{ [1, 'a'] | sort }}",
      '{{ [none, 1] | max }}',
    ]) {
      expect(() => render(source), source).toThrow(failing('INCOMPATIBLE', /not supported between instances/))
    }
    expect(() => render('{{ nobody < 1 }}')).toThrow(failing('UNKNOWN_NAME'))
    expect(() => new Template('{% autoescape true %}{% endautoescape %}')).toThrow(failing('INCOMPATIBLE'))
    expect(render("{{ '%d of %s' % (1, 'x') }}")).toBe('1 of x')
    expect(() => render('{{ [1] | tojson(indent=1000000000) }}')).toThrow(failing('LIMIT_EXCEEDED'))
  })

  it('holds the limits that it is given', () => {
    const source = '{% for i in range(1000) %}x{% endfor %}'
    const limited = (options: TemplateOptions) => () => {
      using template = new Template(source, options)
      return template.render().text.length
    }
    expect(limited({ outputBytes: 1000 })()).toBe(1000)
    expect(limited({ outputBytes: 999 })).toThrow(failing('LIMIT_EXCEEDED'))
    expect(limited({ steps: 1000 })).toThrow(failing('LIMIT_EXCEEDED'))
    expect(limited({ madeBytes: 1000 })).toThrow(failing('LIMIT_EXCEEDED'))
    expect(limited({ steps: 2_000_000_000, madeBytes: 2 ** 36 })()).toBe(1000)
    for (const options of [
      { steps: 0 },
      { steps: 1.5 },
      { madeBytes: 2 ** 40 },
      { outputBytes: '9' as unknown as number },
    ]) {
      expect(limited(options)).toThrow(failing('OUT_OF_RANGE'))
    }
    expect(limited({ step: 1 } as object)).toThrow(failing('UNKNOWN_NAME', /did you mean 'steps'/))
  })

  it('survives namespaces that contain each other', () => {
    const cycle = '{% set a = namespace() %}{% set b = namespace() %}{% set a.x = b %}{% set b.x = a %}'
    expect(render(`${cycle}{{ a == b }}{{ [a] == [a] }}{{ {a: 1}[a] }}`)).toBe('FalseTrue1')
    expect(() => render(`${cycle}{{ a < b }}`)).toThrow(failing('INCOMPATIBLE'))
    expect(() => render(`${cycle}{{ a }}`)).toThrow(failing('LIMIT_EXCEEDED'))
  })

  it('says that it is closed after its disposal', () => {
    const template = new Template('x')
    template[Symbol.dispose]()
    expect(() => template.render()).toThrow(failing('CLOSED'))
  })
})

// The memory of a WebAssembly module never shrinks again: there these are rendered in the sandbox alone.
describe.skipIf(process.env.FULMAR_TEST_BACKEND === 'wasm')('a hostile template that is trusted', () => {
  const bombs = Object.entries(BOMBS).filter(([, { isLong = false }]) => !isLong)

  it.each(bombs)('comes to an end: %s', (_, { source, input }) => {
    expect(() => render(source, input)).toThrow(
      expect.objectContaining({ code: expect.stringMatching(/^(LIMIT_EXCEEDED|INCOMPATIBLE|MALFORMED)$/) }),
    )
    expect(render('{{ 1 + 1 }}')).toBe('2')
  })
})
