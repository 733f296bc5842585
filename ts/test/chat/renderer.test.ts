/** Every family through the one door: the golden texts, and the way from messages to tokens and back. */

import { readFileSync } from 'node:fs'
import { describe, expect, it } from 'vitest'
import {
  type ConversationText,
  createRenderer,
  type DisposableRenderer,
  extendPrompt,
  type Message,
  ORIGINS,
  type RendererConfig,
  type ToolSpec,
} from '../../src/chat/index.js'
import { CharTokenizer, HfTokenizer, trainByteBpe } from '../../src/tokenizer/index.js'
import { alphabet, configs, specialTokens } from './families.js'

const failing = (code: string) => expect.objectContaining({ name: 'FulmarError', code })

const tools: readonly ToolSpec[] = [
  {
    type: 'function',
    function: {
      name: 'add',
      description: 'Adds.',
      parameters: { type: 'object', properties: { a: { type: 'integer' }, s: { type: 'string' } } },
    },
  },
]

function withRenderer(
  config: RendererConfig,
  body: (renderer: DisposableRenderer, tokenizer: CharTokenizer) => void,
): void {
  using tokenizer = new CharTokenizer({ alphabet, specialTokens })
  using renderer = createRenderer(tokenizer, config)
  body(renderer, tokenizer)
}

interface GoldenRow {
  id: string
  config: RendererConfig
  add_generation_prompt: boolean
  spells_no_marker: boolean
  text: string
}

function golden(path: string): string {
  return readFileSync(new URL(`../../../tests/golden/${path}`, import.meta.url), 'utf8')
}

/** The value of a row's key as it is written: parsed, `2.0` would be `2`. */
function textOf(line: string, key: string, next: string): string {
  const start = line.indexOf(`"${key}": `) + key.length + 4
  return line.slice(start, line.indexOf(`, "${next}": `, start))
}

function lines(path: string): string[] {
  return golden(path).split('\n').filter(Boolean)
}

/** The ids of an assistant's turn at the end of `messages`, and those before it. */
function lastTurn(renderer: DisposableRenderer, messages: readonly Message[]): [Uint32Array, Uint32Array] {
  const { ids, sampledMask } = renderer.render(messages)
  const start = sampledMask.indexOf(1)
  return [ids.slice(0, start), ids.slice(start, sampledMask.lastIndexOf(1) + 1)]
}

describe('createRenderer', () => {
  it('writes what the templates of the families write', () => {
    const cases = lines('chat/family.jsonl')
    expect(cases.length).toBeGreaterThan(100)
    for (const line of cases) {
      const { id, config, add_generation_prompt, spells_no_marker, text }: GoldenRow = JSON.parse(line)
      const messages = textOf(line, 'messages', 'tools')
      const tools = textOf(line, 'tools', 'add_generation_prompt').replace(/^null$/, '[]')
      withRenderer(config, (renderer, tokenizer) => {
        const options = { addGenerationPrompt: add_generation_prompt, tools }
        expect(renderer.renderText(messages, options), id).toBe(text)
        const { ids } = renderer.render(messages, options)
        expect(tokenizer.decode(ids), id).toBe(text)
        if (spells_no_marker) expect(ids, id).toEqual(tokenizer.encode(text, { addedTokens: true }).ids)
      })
    }
  })

  it('writes what the built-in templates of the newer families write', () => {
    const families: Record<string, RendererConfig> = {
      glm4: { name: 'glm4_5' },
      gpt_oss: { name: 'gpt_oss', conversationStartDate: '2024-07-26' },
      kimi_k2: { name: 'kimi_k2' },
      minimax_m2: { name: 'minimax_m2' },
    }
    const chats = JSON.parse(golden('template/builtin_cases.json'))
    interface Row {
      template: string
      case: string
      kwargs: object
      add_generation_prompt: boolean
      expected: string | null
    }
    // Arguments as text, several calls a turn and roles of their own are the families' known differences.
    const differs = ['call_text', 'parallel', 'call_flat', 'developer', 'thinking', 'thinking_prompt']
    const cases = lines('template/builtin.jsonl')
      .map((line): Row => JSON.parse(line))
      .filter(
        (row) =>
          row.expected &&
          !differs.includes(row.case) &&
          JSON.stringify(row.kwargs) === '{}' &&
          families[row.template],
      )
    expect(cases.length).toBeGreaterThan(20)
    for (const row of cases) {
      const { messages, tools } = chats[row.case]
      withRenderer(families[row.template] ?? { name: 'chatml' }, (renderer) => {
        const options = { addGenerationPrompt: row.add_generation_prompt, tools: tools ?? [] }
        expect(renderer.renderText(messages, options), `${row.template} ${row.case}`).toBe(row.expected)
      })
    }
  })

  it('writes many conversations in one call as it writes each', () => {
    const odd = ['', 'a\0b', '\ufffd', 'Übung 日本語 🙂', '{"role":"x"}', 'u', '\n']
    const chats = odd.flatMap((content): ConversationText[] => [
      { messages: [{ role: 'user', content }] },
      { messages: [{ role: 'user', content }], addGenerationPrompt: true },
      {
        messages: [
          { role: 'system', content },
          { role: 'user', content: [{ type: 'text', text: content }] },
        ],
      },
      { messages: JSON.stringify([{ role: 'user', content }]) },
    ])
    const long = { messages: [{ role: 'user', content: 'x'.repeat(70_000) }] }
    for (const config of configs) {
      withRenderer(config, (renderer) => {
        const all = config.name === 'chatml' ? chats : chats.flatMap((chat) => [chat, { ...chat, tools }])
        const given = [long, ...all, long, ...all]
        const single = given.map(({ messages, ...options }) => renderer.renderText(messages, options))
        expect(renderer.renderTexts(given), config.name).toEqual(single)
        expect(renderer.renderTexts([])).toEqual([])
      })
    }
  })

  it('names the conversation that it cannot write', () => {
    withRenderer({ name: 'chatml' }, (renderer) => {
      const good = { messages: [{ role: 'user', content: 'a' }] }
      const cases: readonly (readonly [unknown, string, string])[] = [
        [
          { messages: [{ role: 'stranger', content: 'a' }] },
          'UNKNOWN_NAME',
          'conversations[1]: messages[0]: role must',
        ],
        [{ messages: [] }, 'EMPTY', 'conversations[1]: messages must'],
        [
          { messages: [{ role: 'user', content: '\ud83d' }] },
          'MALFORMED',
          'conversations[1]: messages[0] must',
        ],
        [{ messages: [{ role: 'user', content: 'a' }], tool: [] }, 'UNKNOWN_NAME', 'conversations[1]: '],
        [
          { messages: [{ role: 'user', content: 'a' }], tools },
          'INCOMPATIBLE',
          'conversations[1]: tools must',
        ],
        [null, 'MALFORMED', 'conversations[1]: '],
        [{}, 'MALFORMED', 'conversations[1]: '],
      ]
      for (const [bad, code, place] of cases) {
        const message = expect.stringContaining(place)
        expect(() => renderer.renderTexts([good, bad as never, good]), JSON.stringify(bad)).toThrow(
          expect.objectContaining({ code, message }),
        )
      }
      expect(() => renderer.renderTexts(7 as never)).toThrow(failing('MALFORMED'))
    })
  })

  it('reads back what it wrote', () => {
    for (const config of configs) {
      const { name } = config
      const reasons = !['chatml', 'qwen2_5', 'llama3', 'deepseek_v3', 'kimi_k2'].includes(name)
      const thinks = reasons && !('enableThinking' in config && config.enableThinking === false)
      withRenderer(config, (renderer) => {
        const said = { role: 'assistant', content: 'Four.', ...(thinks && { reasoning_content: '2+2' }) }
        const [promptIds, completion] = lastTurn(renderer, [{ role: 'user', content: '2+2?' }, said])
        const parsed = renderer.parse(completion, { promptIds, tools })
        const stops = renderer.stopIds.includes(completion.at(-1) ?? -1)
        const reasoningContent = thinks && name !== 'deepseek_r1' ? '2+2' : null
        expect(parsed, name).toEqual({
          content: 'Four.',
          reasoningContent,
          reasoningComplete: true,
          toolCalls: [],
          finished: stops,
          overran: false,
        })
      })
    }
  })

  it('reads calls back with their arguments', () => {
    for (const config of configs.filter(({ name }) => name !== 'chatml')) {
      const called = { name: 'add', arguments: { a: 4, s: 'true' } }
      const call = { id: 'functions.add:0', type: 'function', function: called }
      const said = { role: 'assistant', content: null, tool_calls: [call] }
      withRenderer(config, (renderer) => {
        const [promptIds, completion] = lastTurn(renderer, [{ role: 'user', content: '2+2?' }, said])
        const [read, ...others] = renderer.parse(completion, { promptIds, tools }).toolCalls
        expect(others).toEqual([])
        expect(read, config.name).toMatchObject({ status: 'ok', name: 'add' })
        expect(JSON.parse(read?.arguments ?? ''), config.name).toEqual(called.arguments)
        const [start, end] = read?.tokenSpan ?? [0, 0]
        expect(end - start, config.name).toBeGreaterThan(0)
      })
    }
  })

  it('keeps every sampled token over a bridge, or says why not', () => {
    const reply = [{ role: 'tool', content: '4', tool_call_id: 'functions.add:0', name: 'add' }]
    for (const config of configs) {
      withRenderer(config, (renderer, tokenizer) => {
        const prompt = renderer.render([{ role: 'user', content: '?' }], { addGenerationPrompt: true }).ids
        const sampled = tokenizer.encode('Let me see').ids
        const bridge = renderer.bridge(prompt, sampled, reply)
        if (!bridge.ok) throw new Error(`${config.name}: ${bridge.reason}`)
        const { ids, sampledMask, origins } = bridge.rendered
        const next = Uint32Array.of(...prompt, ...sampled, ...ids)
        expect(extendPrompt(prompt, sampled, bridge)).toEqual(next)
        expect(sampledMask.includes(1)).toBe(false)
        expect([...origins].filter((code) => ORIGINS[code] === 'tool').length).toBeGreaterThan(0)
      })
    }
  })

  it('says what a re-render and a bridge promise', () => {
    const promises = (config: RendererConfig) => {
      let facts: readonly string[] = []
      withRenderer(config, (renderer) => {
        facts = [renderer.prefixStability(), renderer.thinkingRetention()]
      })
      return facts
    }
    expect(promises({ name: 'chatml' })).toEqual(['always', 'all'])
    expect(promises({ name: 'qwen3' })).toEqual(['never', 'tool_cycle'])
    expect(promises({ name: 'qwen3', enableThinking: false })).toEqual(['within_tool_cycle', 'all'])
    expect(promises({ name: 'kimi_k2' })).toEqual(['always', 'all'])
    expect(promises({ name: 'glm4_5', thinkingRetention: 'all' })[1]).toBe('all')
  })

  it('knows models by their exact names, and takes the template of the tokenizer for others', () => {
    using tokenizer = new CharTokenizer({ alphabet, specialTokens })
    using auto = createRenderer(tokenizer, { name: 'auto', model: 'Qwen/Qwen3-8B' })
    using family = createRenderer(tokenizer, { name: 'qwen3' })
    const chat = [{ role: 'user', content: 'Hi' }]
    expect(auto.render(chat)).toEqual(family.render(chat))
    expect([auto.name, auto.reason]).toEqual(['qwen3', expect.stringContaining('Qwen/Qwen3-8B')])
    const other = (model: string) => () => createRenderer(tokenizer, { name: 'auto', model })
    expect(other('ada/Qwen3-8B')).toThrow(failing('INCOMPATIBLE'))
    expect(other('Qwen/Qwen3-8b')).toThrow(failing('UNKNOWN_NAME'))
    expect(other('Qwen/Qwen3-8b')).toThrow(/did you mean "Qwen\/Qwen3-8B"/)
  })

  it('lets the template of a tokenizer decide where no model is named', () => {
    const template = '{% for m in messages %}{{ m.content }}<|im_end|>{% endfor %}'
    using trained = trainByteBpe(['user'], { vocabSize: 400, specialTokens })
    using tokenizer = HfTokenizer.fromJson(trained.toJSON(), undefined, template)
    using renderer = createRenderer(tokenizer, { name: 'auto' })
    expect([renderer.name, renderer.reason]).toEqual(['opaque', expect.stringContaining('no known family')])
    const tools = [{ name: 'add', parameters: {} }]
    const chat = [{ role: 'user', content: 'Hi' }]
    expect(() => renderer.render(chat, { tools })).toThrow(failing('INCOMPATIBLE'))
    expect(() => renderer.render(chat, { tools })).toThrow(/tools must be left out/)
  })

  it('refuses half a surrogate pair with the number of its message', () => {
    using tokenizer = new CharTokenizer({ alphabet, specialTokens })
    using renderer = createRenderer(tokenizer, { name: 'chatml' })
    const chat = [
      { role: 'user', content: 'a' },
      { role: 'user', content: 'b\ud83d' },
    ]
    expect(() => renderer.render(chat)).toThrow(failing('MALFORMED'))
    expect(() => renderer.render(chat)).toThrow(/messages\[1\] .*half a surrogate pair/)
  })

  it('refuses families, knobs and tokenizers that do not fit', () => {
    using tokenizer = new CharTokenizer({ alphabet, specialTokens })
    const make = (config: object) => () => createRenderer(tokenizer, config as RendererConfig)
    expect(make({ name: 'qwen9' })).toThrow(failing('UNKNOWN_NAME'))
    expect(make({ name: 'qwen3', enableThinkin: true })).toThrow(failing('UNKNOWN_NAME'))
    expect(make({ name: 'chatml', enableThinking: true })).toThrow(failing('UNKNOWN_NAME'))
    expect(make({ name: 'qwen3', enableThinking: 1 })).toThrow(failing('MALFORMED'))
    expect(make({})).toThrow(failing('MALFORMED'))
    const contradiction = { name: 'qwen3_6', preserveThinking: true, thinkingRetention: 'tool_cycle' }
    expect(make(contradiction)).toThrow(failing('INCOMPATIBLE'))
    using plain = new CharTokenizer()
    for (const config of configs.filter(({ name }) => name !== 'chatml'))
      expect(() => createRenderer(plain, config), config.name).toThrow(failing('INCOMPATIBLE'))
  })
})

describe('an opaque template', () => {
  const chatMl = `{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}
    {%- if add_generation_prompt %}<|im_start|>assistant\n{% endif %}`
  const chat = [
    { role: 'user', content: 'Say <|im_end|>' },
    { role: 'assistant', content: 'No' },
  ]

  it('gives the tokens, the masks and the bridges of the family that it writes', () => {
    using tokenizer = new CharTokenizer({ alphabet, specialTokens })
    using opaque = createRenderer(tokenizer, { name: 'opaque', template: chatMl })
    using family = createRenderer(tokenizer, { name: 'chatml' })
    const options = { addGenerationPrompt: true }
    expect(opaque.render(chat, options)).toEqual(family.render(chat, options))
    expect(opaque.stopIds).toEqual(family.stopIds.slice(0, 1))
    const { ids } = family.render(chat.slice(0, 1), options)
    const sampled = tokenizer.encode('Ye').ids
    const reply = [{ role: 'user', content: 'Why?' }]
    expect(opaque.bridge(ids, sampled, reply)).toEqual(family.bridge(ids, sampled, reply))
    expect([opaque.prefixStability(), opaque.thinkingRetention()]).toEqual(['unknown', 'template'])
  })

  it('shows its variables and its clock to the template, and reads as another family', () => {
    using tokenizer = new CharTokenizer({ alphabet, specialTokens })
    using opaque = createRenderer(tokenizer, {
      name: 'opaque',
      template: "{{ x }} {{ bos_token }} {{ strftime_now('%Y') }}",
      templateKwargs: { x: 7 },
      specialTokens: { bos_token: '<s>' },
      stopTokens: ['<|im_end|>'],
      now: new Date('2026-01-02T03:04:05Z'),
      parser: { name: 'qwen3' },
    })
    expect(opaque.renderText(chat)).toBe('7 <s> 2026')
    const { ids } = tokenizer.encode('<think>\nso\n</think>\n\nYes<|im_end|>', { addedTokens: true })
    expect(opaque.parse(ids)).toMatchObject({ content: 'Yes', reasoningContent: 'so', finished: true })
  })

  it('is refused where nothing is known', () => {
    using tokenizer = new CharTokenizer()
    const make = (config: object) => () => createRenderer(tokenizer, { name: 'opaque', ...config })
    expect(make({})).toThrow(failing('INCOMPATIBLE'))
    expect(make({ template: '{{' })).toThrow(failing('MALFORMED'))
    expect(make({ template: 'x', thinkingRetention: 'all' })).toThrow(failing('UNKNOWN_NAME'))
    expect(make({ template: 'x', parser: { name: 'opaque' } })).toThrow(failing('INCOMPATIBLE'))
  })
})
