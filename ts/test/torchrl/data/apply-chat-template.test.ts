import { describe, expect, it } from 'vitest'
import { Template, TemplateRegistry } from '../../../src/template/index.js'
import { Ragged, Tensor, TensorDict } from '../../../src/tensor/index.js'
import { HfTokenizer } from '../../../src/tokenizer/index.js'
import {
  type ChatTemplateOptions,
  ContentBase,
  type DictChatOptions,
  History,
  toPadded,
  toRagged,
} from '../../../src/torchrl/index.js'

const failing = (code: string, text = '') =>
  expect.objectContaining({ name: 'FulmarError', code, message: expect.stringContaining(text) })
const load = (name: string) =>
  HfTokenizer.fromFolder(new URL(`../../../../tests/golden/tokenizer/${name}`, import.meta.url).pathname)
const qwen = await load('qwen2')
const smol = await load('smollm2')
const TOKENS = { bos_token: '<s>', eos_token: '</s>' }
const sentences = HfTokenizer.fromJson(smol.toJSON(), TOKENS)

const TINY = { model: { type: 'WordLevel', vocab: { a: 0 }, unk_token: 'a' } }

const said = (...turns: readonly (readonly [string, string])[]) =>
  History.fromChats(turns.map(([role, content]) => ({ role, content })))
const short = said(['user', 'Hi'], ['assistant', 'Yo!'])
const long = said(
  ['system', 'Sys.'],
  ['user', 'Hi'],
  ['assistant', 'Yo!'],
  ['user', 'Bye'],
  ['assistant', 'Ciao'],
)

const numbers = (tensor: Tensor) => Array.from(tensor.data, Number)
/** The text that a mask holds. */
function masked(history: History, options: Partial<ChatTemplateOptions> = {}, tokenizer = qwen): string {
  const asked = { tokenizer, addGenerationPrompt: false, mask: {}, ...options } as DictChatOptions
  const dict = history.applyChatTemplate(asked)
  const marks = numbers(dict.tensor('assistant_masks'))
  return tokenizer.decode(Uint32Array.from(numbers(dict.tensor('input_ids')).filter((_, t) => marks[t])))
}

/** A template without `generation` blocks. */
const PLAIN =
  '{% for m in messages %}[{{ m.role }}] {{ m.content }}<|im_end|>\n{% endfor %}' +
  '{% if add_generation_prompt %}[assistant] {% endif %}'

describe('applyChatTemplate', () => {
  const chatml = { templateName: 'chatml_format' } as const

  it('T1: gives a text', () => {
    const text = long.applyChatTemplate({ ...chatml, addGenerationPrompt: false })
    expect(text).toBe(
      '<|im_start|>system\nSys.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\nYo!<|im_end|>\n' +
        '<|im_start|>user\nBye<|im_end|>\n<|im_start|>assistant\nCiao<|im_end|>\n',
    )
  })

  it('T2: gives a tensor of ids where they are asked for', () => {
    const ids = short.applyChatTemplate({ ...chatml, tokenizer: qwen, tokenize: true })
    expect(ids).toBeInstanceOf(Tensor)
    const text = short.applyChatTemplate(chatml)
    expect(numbers(ids as Tensor)).toEqual([...qwen.encode(String(text), { addedTokens: true }).ids])
    expect([(ids as Tensor).dtype, (ids as Tensor).shape.length]).toEqual(['i64', 2])
  })

  it('T3: opens the turn of the assistant', () => {
    expect(short.applyChatTemplate(chatml)).toMatch(/<\|im_start\|>assistant\n$/)
  })

  it('T4: texts of many lines come back from ChatML', () => {
    const history = said(['user', 'def f():\n    return 1\n\n  odd'], ['assistant', 'a\n\n\tb'])
    const text = String(history.applyChatTemplate({ ...chatml, addGenerationPrompt: false }))
    const back = History.fromText(text, chatml)
    expect([back.role, back.content]).toEqual([history.role, history.content])
  })

  it('has the shapes of TorchRL', () => {
    const batch = History.stack([short, long])
    const cube = History.stack([batch, batch])
    const ids = { ...chatml, tokenizer: qwen, tokenize: true } as const
    const shapes = (value: unknown): unknown =>
      Array.isArray(value) ? value.map(shapes) : value instanceof Tensor ? [...value.shape] : typeof value
    expect(shapes(short.applyChatTemplate(chatml))).toBe('string')
    expect(shapes(batch.applyChatTemplate(chatml))).toEqual(['string', 'string'])
    expect(shapes(cube.applyChatTemplate(chatml))).toEqual([
      ['string', 'string'],
      ['string', 'string'],
    ])
    const [one, other] = [short, long].map((row) => (row.applyChatTemplate(ids) as Tensor).shape[1])
    expect(shapes(short.applyChatTemplate(ids))).toEqual([1, one])
    expect(shapes(batch.applyChatTemplate(ids))).toEqual([
      [1, one],
      [1, other],
    ])
    expect(shapes(cube.applyChatTemplate(ids))).toHaveLength(2)
    const dict = short.applyChatTemplate({ ...ids, returnDict: true })
    expect([dict.batchSize, dict.keys(), dict.tensor('input_ids').shape]).toEqual([
      [],
      ['input_ids', 'attention_mask'],
      [one],
    ])
    const rows = batch.applyChatTemplate({ ...ids, returnDict: true })
    expect([rows.batchSize, [...rows.ragged('input_ids').offsets]]).toEqual([
      [2],
      [0, one, Number(one) + Number(other)],
    ])
    expect(() => cube.applyChatTemplate({ ...ids, returnDict: true })).toThrow(failing('SHAPE_MISMATCH'))
    expect(() => short.at(0).applyChatTemplate(chatml)).toThrow(failing('SHAPE_MISMATCH', 'unsqueeze'))
  })

  it('pads on the side that is said, and never guesses', () => {
    const batch = History.stack([short, long])
    const ids = { ...chatml, tokenizer: qwen, mask: {}, addGenerationPrompt: false } as const
    const ragged = batch.applyChatTemplate(ids)
    for (const side of ['left', 'right'] as const) {
      const padded = batch.applyChatTemplate({ ...ids, padding: { side, multipleOf: 8 } })
      const [two, width = 0] = padded.tensor('input_ids').shape
      expect([two, width % 8]).toEqual([2, 0])
      const lengths = Uint32Array.of(
        ragged.ragged('input_ids').row(0).shape[0] ?? 0,
        ragged.ragged('input_ids').row(1).shape[0] ?? 0,
      )
      for (const key of ['input_ids', 'attention_mask', 'assistant_masks'])
        expect(toRagged(padded.tensor(key), lengths, { side }).equals(ragged.ragged(key))).toBe(true)
      const edge = side === 'left' ? 0 : width - 1
      const at = (key: string) => Number(padded.tensor(key).select(0, 0).data[edge])
      expect([at('input_ids'), at('attention_mask'), at('assistant_masks')]).toEqual([
        qwen.idOf(qwen.specialTokens.pad_token ?? ''),
        0,
        0,
      ])
    }
    const alone = short.applyChatTemplate({ ...ids, padding: { side: 'right', value: 7, multipleOf: 64 } })
    expect([alone.tensor('input_ids').shape, Number(alone.tensor('input_ids').data[63])]).toEqual([[64], 7])
    const bare = HfTokenizer.fromJson(qwen.toJSON())
    expect(() => batch.applyChatTemplate({ ...ids, tokenizer: bare, padding: { side: 'left' } })).toThrow(
      failing('INCOMPATIBLE', 'padding.value'),
    )
  })

  it('cuts at the side that is said, masks too', () => {
    const ids = {
      ...chatml,
      tokenizer: qwen,
      mask: { allowEmpty: true },
      addGenerationPrompt: false,
    } as const
    const whole = long.applyChatTemplate(ids)
    for (const key of ['input_ids', 'assistant_masks'])
      for (const side of ['left', 'right'] as const) {
        const cut = long.applyChatTemplate({ ...ids, truncation: { maxLength: 10, side } })
        const all = numbers(whole.tensor(key))
        expect(numbers(cut.tensor(key))).toEqual(side === 'left' ? all.slice(-10) : all.slice(0, 10))
      }
    const cut = { ...ids, mask: {}, truncation: { maxLength: 5 } } as const
    expect(() => long.applyChatTemplate(cut)).toThrow(failing('EMPTY', 'truncation'))
  })

  it('says what is missing or contradicts itself', () => {
    const cases: [ChatTemplateOptions, string][] = [
      [{}, 'INCOMPATIBLE'],
      [{ templateName: 'nope' }, 'UNKNOWN_NAME'],
      [{ template: '{{' }, 'MALFORMED'],
      [{ ...chatml, tokenize: true }, 'INCOMPATIBLE'],
      [{ ...chatml, tokenizer: qwen, returnDict: false, mask: {} }, 'INCOMPATIBLE'],
      [
        { ...chatml, tokenizer: qwen, mask: {}, continueFinalMessage: true, addGenerationPrompt: false },
        'INCOMPATIBLE',
      ],
      [{ ...chatml, tools: '[1] , "mask": {}' }, 'MALFORMED'],
      [{ ...chatml, tools: '[{"a":"\uD83D"}]' }, 'MALFORMED'],
      [{ ...chatml, truncation: { maxLength: 2, sides: 'left' } as never }, 'UNKNOWN_NAME'],
      [{ ...chatml, generationPrompt: true } as never, 'UNKNOWN_NAME'],
      [{ template: '{{ strftime_now("%Y") }}' }, 'INCOMPATIBLE'],
    ]
    for (const [options, code] of cases)
      expect(() => short.applyChatTemplate(options), JSON.stringify(options)).toThrow(failing(code))
  })

  it('goes on inside the final message', () => {
    const text = short.applyChatTemplate({
      ...chatml,
      addGenerationPrompt: false,
      continueFinalMessage: true,
    })
    expect(text).toMatch(/Yo!$/)
  })

  it("takes the tokenizer's own template, tools, documents, keywords and the clock", () => {
    const template =
      '{{ bos_token }}{{ messages[0].content }}{{ tools[0].n }}{{ documents[0].t }}{{ k }}{{ strftime_now("%Y") }}'
    const tokenizer = HfTokenizer.fromJson(qwen.toJSON(), { bos_token: '<|im_start|>' }, template)
    const options = {
      tokenizer,
      tools: '[{"n":1.0}]',
      documents: [{ t: 'D' }],
      templateKwargs: { k: null },
      now: new Date('2026-02-03T04:05:06Z'),
    }
    expect(short.applyChatTemplate(options)).toBe('<|im_start|>Hi1.0DNone2026')
    expect(short.applyChatTemplate({ ...options, specialTokens: { bos_token: 'B' } })).toBe('BHi1.0DNone2026')
    using compiled = new Template('{{ messages | length }}')
    expect(short.applyChatTemplate({ tokenizer, template: compiled })).toBe('2')
    expect(long.applyChatTemplate({ tokenizer, template: compiled })).toBe('5')
  })

  it('sees a template that takes the place of another, and keeps those of tokenizers apart', () => {
    using registry = new TemplateRegistry()
    const say = (options: ChatTemplateOptions) => short.applyChatTemplate(options)
    for (const text of ['one', 'two']) {
      registry.add('mine', { template: text, override: true })
      expect(say({ registry, templateName: 'mine' })).toBe(text)
    }
    const [one, two] = ['one', 'two'].map((text) => HfTokenizer.fromJson(TINY, {}, text))
    for (let round = 0; round < 2; round += 1) {
      expect([one, two].map((tokenizer) => tokenizer && say({ tokenizer }))).toEqual(['one', 'two'])
      expect(say({ ...(one && { tokenizer: one }), registry, templateName: 'mine' })).toBe('two')
      expect(say({ ...(one && { tokenizer: one }), template: 'three' })).toBe('three')
      expect(say({ ...(one && { tokenizer: one }), registry })).toBe('one')
    }
  })

  it('does not show padding and completion to templates', () => {
    const batch = History.stack([short, long.append({ role: 'assistant', content: 'x', is_complete: false })])
    const template = '{% for m in messages %}{{ m.role }}{{ m.is_complete is defined }} {% endfor %}'
    expect(batch.toPadded().applyChatTemplate({ template })).toEqual(batch.applyChatTemplate({ template }))
    expect(short.applyChatTemplate({ template })).toBe('userFalse assistantFalse ')
  })

  it('refuses two tokens at the beginning where one was added by mistake', () => {
    const options = {
      tokenizer: qwen,
      template: '{{ bos_token }}{{ messages[0].content }}',
      specialTokens: { bos_token: '<|im_start|>' },
      tokenize: true,
    } as const
    const doubled = said(['user', '<|im_start|>x'])
    expect(() => doubled.applyChatTemplate(options)).toThrow(failing('INCOMPATIBLE', 'twice'))
    expect(doubled.applyChatTemplate({ ...options, allowDoubleBos: true })).toBeInstanceOf(Tensor)
    expect(said(['user', 'x']).applyChatTemplate(options)).toBeInstanceOf(Tensor)
  })
})

describe('masks of texts', () => {
  const MARKERS = [
    '<|im_start|>',
    '<|im_end|>',
    '<|header_start|>',
    '<|header_end|>',
    '<|eot|>',
    'Assistant:',
  ]
  const TEXTS: readonly (readonly [string, readonly boolean[]])[] = [
    [
      '<|im_start|>system\nS<|im_end|>\n<|im_start|>user\nU<|im_end|>\n<|im_start|>assistant\nA b\nc<|im_end|>',
      [true, true, true],
    ],
    [
      '<|im_start|>system\nS<|im_end|>\n<|im_start|>user\nU<|im_end|>\n<|im_start|>assistant\nA b',
      [true, true, false],
    ],
    [
      '<|im_start|>user\nU<|im_end|>\n<|im_start|>assistant\nA<|endoftext|>\n<|im_start|>user\nV<|im_end|>\n<|im_start|>assistant\nB',
      [true, true, true, false],
    ],
    ['<|im_start|>assistant\nalone', [false]],
    ['<|im_start|>system\n<|im_end|>\n<|im_start|>user\n<|im_end|>', [true, true]],
    [
      '<|im_start|>system\nS<|im_end|>\n<|im_start|>assistant\nA.\n<tool_call>\n{"name": "calculator", "arguments": {"expression": "2+2"}}\n</tool_call><|im_end|>\n' +
        '<|im_start|>tool\n<tool_response>\n4\n</tool_response><|im_end|>\n<|im_start|>assistant\nIt is',
      [true, true, true, false],
    ],
  ]
  const llama = (text: string) =>
    text
      .replace(/<\|im_start\|>(\w+)\n/g, '<|header_start|>$1<|header_end|>\n\n')
      .replace(/(<\|im_end\|>|<\|endoftext\|>)\n?/g, '<|eot|>')

  it.each(TEXTS)('T5: tells which messages of %j are complete', (text, complete) => {
    const history = History.fromText(text, { templateName: 'qwen' })
    expect(history.isComplete).toEqual(complete)
    expect([history.role, history.content].map((column) => (column as unknown[]).length)).toEqual([
      complete.length,
      complete.length,
    ])
    if (text.includes('tool_response')) {
      expect([history.at(2).role, history.at(2).content]).toEqual(['tool', '4'])
      expect(history.at(1).toolCalls).toEqual([{ name: 'calculator', arguments: { expression: '2+2' } }])
    }
  })

  it.each(TEXTS)('T6: marks what assistants say in %j and no marker', (text) => {
    expectOnlyAssistants(History.fromText(text, { templateName: 'qwen' }), 'qwen')
  })

  it.each(TEXTS.slice(0, 5))('T7: marks the same in the format of Llama 4: %j', (text) => {
    const history = History.fromText(llama(text), { templateName: 'llama' })
    expect(history.isComplete).toEqual(History.fromText(text, { templateName: 'qwen' }).isComplete)
    expectOnlyAssistants(history, 'llama')
  })

  it.each([
    ['Qwen/Qwen2.5-0.5B', 'qwen'],
    ['microsoft/phi-2', 'chatml_format'],
    ['HuggingFaceH4/zephyr-7b-beta', 'chatml_format'],
    ['facebook/opt-125m', 'chatml_format'],
    ['gpt2', 'chatml_format'],
    ['EleutherAI/pythia-70m', 'chatml_format'],
    ['bigscience/bloom-560m', 'chatml_format'],
    ['deepseek-ai/deepseek-coder-6.7b-base', 'deepseek'],
  ])('T8: %s is rendered with %s and has a mask', (nameOrPath, templateName) => {
    const greeting = said(['user', 'Hello'], ['assistant', 'Hi there!'])
    const options = { tokenizer: sentences, mask: {}, addGenerationPrompt: false } as const
    const guessed = greeting.applyChatTemplate({ ...options, selection: 'torchrl', nameOrPath })
    const named = greeting.applyChatTemplate({ ...options, templateName })
    expect(numbers(guessed.tensor('input_ids'))).toEqual(numbers(named.tensor('input_ids')))
    expect(numbers(guessed.tensor('assistant_masks'))).toContain(1)
  })

  it.each(['qwen', 'dialogpt', 'falcon', 'deepseek'])('T9: %s marks the assistants only', (templateName) => {
    expectOnlyAssistants(long, templateName)
  })

  it('T11: a template of your own is chosen by its keywords and read by its parser', () => {
    using registry = new TemplateRegistry()
    registry.add('mine', {
      template:
        '{% for m in messages %}<{{ m.role }}>{% if m.role == "assistant" %}{% generation %}{{ m.content }}{% endgeneration %}' +
        '{% else %}{{ m.content }}{% endif %}</>{% endfor %}',
      modelFamilyKeywords: ['qwen'],
      inverseParser: (text) =>
        [...text.matchAll(/<(\w+)>(.*?)<\/>/gs)].map(([, role, content]) => ({ role, content })),
    })
    const text = long.applyChatTemplate({ registry, selection: 'torchrl', nameOrPath: 'Qwen/Qwen2.5-3B' })
    expect(text).toContain('<user>Hi</><assistant>Yo!</>')
    const back = History.fromText(String(text), { registry, templateName: 'mine' })
    expect([back.role, back.content]).toEqual([long.role, long.content])
    expect(masked(long, { registry, templateName: 'mine' })).toMatch(/^Yo!.*Ciao$/)
  })

  const CHATS = [
    long,
    short,
    said(
      ['system', 'You write code.'],
      ['user', 'fib?'],
      ['assistant', 'def fib(n):\n    return n'],
      ['user', 'Why?'],
      ['assistant', 'Because.'],
    ),
  ]

  it.each(['chatml_format', 'qwen', 'smollm2', 'llama', 'llama3', 'deepseek', 'falcon'])(
    'T12: what %s writes can be read again',
    (templateName) => {
      const tokenizer = sentences
      for (const history of CHATS) {
        const text = String(
          history.applyChatTemplate({ templateName, specialTokens: TOKENS, addGenerationPrompt: false }),
        )
        const back = History.fromText(text, { templateName, tokenizer })
        // Some templates begin with a greeting that the conversation does not have.
        const start = back.length - history.length
        expect([back.slice(start).role, back.slice(start).content]).toEqual([history.role, history.content])
        expect(back.isComplete).not.toContain(false)
        expect(History.fromText([text, text], { templateName, tokenizer }).shape).toEqual([2, back.length])
      }
    },
  )

  it('gives tool calls, their answers and turns without markers back as they were rendered', () => {
    const calls = [{ name: 'calc', arguments: { e: '1+1', n: 1.5, list: [null, true] } }]
    const tools = History.fromChats([
      { role: 'system', content: 'S' },
      { role: 'user', content: '1+1?' },
      { role: 'assistant', content: 'Let me see.', tool_calls: calls },
      { role: 'tool', content: '2' },
      { role: 'tool', content: 'two' },
      { role: 'assistant', content: '', tool_calls: [...calls, ...calls] },
    ])
    const cases = [
      ['qwen', tools],
      ['qwen2_5', tools],
      ['dialogpt', said(['user', 'Hi'], ['assistant', 'Yo!'], ['user', 'Bye'], ['assistant', ''])],
      ['deepseek', long],
      ['falcon', long],
    ] as const
    for (const [templateName, history] of cases) {
      const options = { templateName, specialTokens: TOKENS, addGenerationPrompt: false } as const
      const text = String(history.applyChatTemplate(options))
      const back = History.fromText(text, { templateName, tokenizer: sentences })
      expect([back.role, back.content, back.toolCalls]).toEqual([
        history.role,
        history.content,
        history.toolCalls,
      ])
      expect(back.applyChatTemplate(options)).toBe(text)
    }
  })

  it('T13: a text that is cut off ends with a message that is not complete', () => {
    for (const templateName of ['chatml_format', 'qwen', 'llama']) {
      const history = said(['system', 'S'], ['user', 'U'], ['assistant', 'A longer answer than ten letters'])
      const text = String(
        history.applyChatTemplate({
          templateName,
          addGenerationPrompt: false,
          specialTokens: { bos_token: '' },
        }),
      )
      const back = History.fromText(text.slice(0, -15), { templateName })
      expect([back.role, back.isComplete]).toEqual([history.role, [true, true, false]])
    }
  })

  it('T14: responses are what comes after the prompt, and padding is not rendered', () => {
    const full = History.stack([
      said(['user', 'a'], ['assistant', 'b']),
      said(['user', 'a'], ['assistant', 'b'], ['user', 'c'], ['assistant', 'd']),
    ])
    const responses = History.stack(full.rows().map((row) => row.slice(1))).toPadded()
    expect(responses.role).toEqual([
      ['assistant', '<none>', '<none>'],
      ['assistant', 'user', 'assistant'],
    ])
    expect(responses.content).toEqual([
      ['b', '', ''],
      ['b', 'c', 'd'],
    ])
    const system = '<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n'
    expect(responses.applyChatTemplate({ templateName: 'qwen', addGenerationPrompt: false })).toEqual([
      `${system}<|im_start|>assistant\nb<|im_end|>\n`,
      `${system}<|im_start|>assistant\nb<|im_end|>\n<|im_start|>user\nc<|im_end|>\n<|im_start|>assistant\nd<|im_end|>\n`,
    ])
  })

  it('T15: templates see the pieces of a message', () => {
    const history = History.fromChats([
      { role: 'assistant', content: [new ContentBase({ type: 'text', text: 'Look.' })] },
      {
        role: 'user',
        content: [
          new ContentBase({ type: 'text', text: 'Hello, world!' }),
          new ContentBase({ type: 'image', url: 'https://example.org/cat.png' }),
        ],
      },
    ])
    const template =
      '{% for m in messages %}<|im_start|>{{ m.role }} {% for c in m.content if c.type == "image" %}<image>{% endfor %}{{ "\n" }}' +
      '{% for c in m.content if c.type == "text" %}{{ c.text }}{% endfor %}<|im_end|>{% endfor %}'
    expect(history.applyChatTemplate({ template })).toBe(
      '<|im_start|>assistant \nLook.<|im_end|><|im_start|>user <image>\nHello, world!<|im_end|>',
    )
  })

  it('asks a template without blocks what each turn adds, and checks the answer', () => {
    expect(masked(long, { template: PLAIN })).toContain('Ciao')
    const same = said(['user', 'yes'], ['assistant', 'yes'])
    const dict = same.applyChatTemplate({
      tokenizer: qwen,
      template: PLAIN,
      mask: {},
      addGenerationPrompt: false,
    })
    expect(numbers(dict.tensor('assistant_masks')).indexOf(1)).toBeGreaterThan(5)
    expect(masked(same, { template: PLAIN })).toBe(' yes')
    const shy = '{% for m in messages %}{{ loop.revindex }}{{ m.content }}{% endfor %}'
    expect(() => masked(long, { template: shy })).toThrow(failing('INCOMPATIBLE'))
  })

  it('has presets that differ in the end of a turn and in the turns', () => {
    const mask = (options: object) => masked(long, { template: PLAIN, mask: options })
    expect(mask({ preset: 'torchrl' })).toBe(' Yo! Ciao')
    expect(mask({ preset: 'trl' })).toBe(' Yo!<|im_end|> Ciao<|im_end|>')
    expect(mask({ preset: 'generated' })).toBe(' Ciao<|im_end|>')
    expect(mask({ include: { endOfTurn: true, turns: 'last' } })).toBe(' Ciao<|im_end|>')
    expect(mask({ preset: 'trl', include: { endOfTurn: false } })).toBe(' Yo! Ciao')
    expect(mask({ straddling: 'exclude' })).toBe('!iao')
    expect(() => mask({ straddling: 'error' })).toThrow(failing('INCOMPATIBLE'))
    expect(() => mask({ presets: 'trl' })).toThrow(failing('UNKNOWN_NAME'))
    expect(() => mask({ include: { endofturn: true } })).toThrow(failing('UNKNOWN_NAME'))
    expect(() => mask({ preset: 'trlx' })).toThrow(failing('UNKNOWN_NAME'))
  })

  it('says why a mask trains nothing', () => {
    const reasons: [History, Partial<ChatTemplateOptions>, string][] = [
      [said(['user', 'Hi']), { templateName: 'qwen' }, 'no message is an assistant'],
      [said(['user', 'Hi'], ['assistant', '']), { template: PLAIN }, 'empty'],
      [
        short,
        { template: '{{ messages[0].content }}{% generation %}{% endgeneration %}' },
        'generation blocks',
      ],
      [short, { templateName: 'qwen', truncation: { maxLength: 3 } }, 'truncation'],
    ]
    for (const [history, options, reason] of reasons) {
      expect(() => masked(history, options)).toThrow(failing('EMPTY', reason))
      expect(masked(history, { ...options, mask: { allowEmpty: true } })).toBe('')
    }
  })

  function expectOnlyAssistants(history: History, templateName: string) {
    const tokens = { bos_token: '<|im_start|>', eos_token: '<|im_end|>' }
    const text = masked(history, { templateName, specialTokens: tokens, mask: { allowEmpty: true } })
    const contents = history.messages
      .filter(({ role }) => role === 'assistant')
      .map(({ content }) => String(content))
    for (const content of contents) expect(text).toContain(content)
    for (const marker of [...MARKERS, 'assistant']) expect(text).not.toContain(marker)
    if (contents.join('') === '') expect(text).toBe('')
  }
})

describe('toPadded and toRagged', () => {
  it('undo each other, and round lengths up', () => {
    const rows = Ragged.fromRows([[1, 2, 3], [], [4]].map((row) => Tensor.from(row)))
    for (const side of ['left', 'right'] as const)
      for (const multipleOf of [1, 2, 5]) {
        const { tensor, lengths } = toPadded(rows, { side, value: 9, multipleOf })
        expect(tensor.shape).toEqual([3, Math.ceil(3 / multipleOf) * multipleOf])
        expect([...lengths]).toEqual([3, 0, 1])
        expect(toRagged(tensor, lengths, { side }).equals(rows)).toBe(true)
      }
    const { tensor } = toPadded([Tensor.from([1, 2]), Tensor.from([1, 2, 3])], { side: 'left', value: 0 })
    expect([...tensor.data]).toEqual([0, 1, 2, 1, 2, 3])
    const wide = Ragged.fromRows([Tensor.zeros('f32', [1, 2]), Tensor.zeros('f32', [3, 2])])
    expect(toPadded(wide, { side: 'left', value: 1, multipleOf: 4 }).tensor.shape).toEqual([2, 4, 2])
  })

  it('refuse what does not fit', () => {
    const rows = Ragged.fromRows([Tensor.from(Uint32Array.of(1))])
    expect(() => toPadded(rows, { side: 'left', value: 0.5 })).toThrow(failing('OUT_OF_RANGE'))
    expect(() => toPadded(rows, { side: 'left', value: 0, multipleOf: 0 })).toThrow(failing('OUT_OF_RANGE'))
    expect(() => toPadded(rows, { side: 'middle' as 'left', value: 0 })).toThrow(failing('UNKNOWN_NAME'))
    const { tensor } = toPadded(rows, { side: 'left', value: 0 })
    expect(() => toRagged(tensor, Uint32Array.of(1, 1), { side: 'left' })).toThrow(failing('SHAPE_MISMATCH'))
    expect(() => toRagged(tensor, Uint32Array.of(2), { side: 'right' })).toThrow(failing('OUT_OF_RANGE'))
    expect(() => toRagged(tensor, Uint32Array.of(2), { side: 'left' })).toThrow(failing('OUT_OF_RANGE'))
    expect(() => toRagged(tensor, Uint32Array.of(1), { side: 'up' as 'left' })).toThrow(
      failing('UNKNOWN_NAME'),
    )
    expect(TensorDict.from({ tensor }).keys()).toEqual(['tensor'])
  })
})
