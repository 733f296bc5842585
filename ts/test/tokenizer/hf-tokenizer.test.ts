import { mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { HfTokenizer } from '../../src/tokenizer/index.js'
import { GOLDEN_NAMES, ggufOfTokens, golden, goldenFolder } from './files.js'

const failing = (code: string) => expect.objectContaining({ name: 'FulmarError', code })

const WORDS = {
  added_tokens: [
    { id: 3, content: '<end>', special: true },
    { id: 5, content: '<tag>', special: false },
  ],
  pre_tokenizer: { type: 'WhitespaceSplit' },
  model: { type: 'WordLevel', vocab: { '<unk>': 0, two: 1, words: 2 }, unk_token: '<unk>' },
}

async function inFolder(files: Readonly<Record<string, string>>, body: (folder: string) => Promise<void>) {
  const folder = await mkdtemp(join(tmpdir(), 'fulmar-tokenizer-'))
  try {
    for (const [name, text] of Object.entries(files)) {
      await mkdir(join(folder, name, '..'), { recursive: true })
      await writeFile(join(folder, name), text)
    }
    await body(folder)
  } finally {
    await rm(folder, { recursive: true })
  }
}

describe('HfTokenizer', () => {
  it('reads markers only where it is asked to', async () => {
    using tokenizer = await golden('qwen2')
    const text = '<|im_start|>user\nhi<|im_end|>'
    const [start, end] = ['<|im_start|>', '<|im_end|>'].map((name) => tokenizer.idOf(name))
    const asText = tokenizer.encode(text)
    expect(asText.ids).not.toContain(start)
    expect(tokenizer.decode(asText.ids)).toBe(text)
    const asIds = tokenizer.encode(text, { addedTokens: true })
    expect([asIds.ids[0], asIds.ids.at(-1)]).toEqual([start, end])
    expect(tokenizer.decode(asIds.ids, { skipSpecial: true })).toBe('user\nhi')
  })

  it('brings any text back that a byte-level vocabulary has bytes for', async () => {
    using tokenizer = await golden('qwen2')
    const text = fc.string({ unit: 'binary' }).map((any) => any.normalize('NFC'))
    fc.assert(
      fc.property(text, (given) => {
        const { ids, offsets } = tokenizer.encode(given)
        expect(tokenizer.decode(ids)).toBe(given)
        expect(offsets).toHaveLength(2 * ids.length)
        if (given !== '') expect([offsets[0], offsets.at(-1)]).toEqual([0, Buffer.byteLength(given)])
      }),
    )
  })

  it.each(GOLDEN_NAMES)('never makes a special id of text: %s', async (name) => {
    using tokenizer = await golden(name)
    const ids = Array.from({ length: tokenizer.vocabSize }, (_, id) => id).filter((id) =>
      tokenizer.isSpecial(id),
    )
    const names = ids.map((id) => tokenizer.tokenOf(id) ?? '').join(' ')
    const unknown = tokenizer.idOf('<unk>') ?? tokenizer.idOf('[UNK]')
    const found = [...tokenizer.encode(names).ids].filter((id) => id !== unknown && tokenizer.isSpecial(id))
    expect(found).toEqual([])
  })

  it('puts the special tokens of its file around a text where that is asked for', async () => {
    using tokenizer = await golden('wordpiece')
    const plain = tokenizer.encode('the quick fox')
    const whole = tokenizer.encode('the quick fox', { addSpecialTokens: true })
    const [first, last] = ['[CLS]', '[SEP]'].map((name) => tokenizer.idOf(name))
    expect([...whole.ids]).toEqual([first, ...plain.ids, last])
    expect([...whole.offsets]).toEqual([0, 0, ...plain.offsets, 0, 0])
    using none = HfTokenizer.fromJson(WORDS)
    expect(none.encode('two', { addSpecialTokens: true })).toEqual(none.encode('two'))
  })

  it('encodes batches as it encodes each text', async () => {
    using tokenizer = await golden('smollm2')
    const texts = ['one two', '', '🐈 é', 'x'.repeat(1000)]
    const { ids, offsets, rows } = tokenizer.encodeBatch(texts)
    expect(rows).toHaveLength(texts.length + 1)
    for (const [index, text] of texts.entries()) {
      const [start, end] = [rows[index] ?? 0, rows[index + 1] ?? 0]
      const one = tokenizer.encode(text)
      expect(ids.slice(start, end)).toEqual(one.ids)
      expect(offsets.slice(2 * start, 2 * end)).toEqual(one.offsets)
    }
    expect(() => tokenizer.encodeBatch(['a', '\uD83D'])).toThrow(failing('UNKNOWN_TEXT'))
  })

  it('has gaps where the file has none: no token, and no text', () => {
    using tokenizer = HfTokenizer.fromJson(WORDS)
    expect(tokenizer.vocabSize).toBe(6)
    expect([tokenizer.tokenOf(4), tokenizer.isSpecial(4), tokenizer.decode(Uint32Array.of(4))]).toEqual([
      undefined,
      false,
      '',
    ])
    expect([tokenizer.isSpecial(3), tokenizer.isSpecial(5)]).toEqual([true, false])
    expect(() => tokenizer.decode(Uint32Array.of(6))).toThrow(failing('OUT_OF_RANGE'))
  })

  it('takes special tokens and chat templates from the files beside it', async () => {
    const config = {
      eos_token: { content: '<end>', special: true },
      pad_token: '<tag>',
      bos_token: null,
      chat_template: [
        { name: 'default', template: 'of the configuration' },
        { name: 'tool_use', template: 'with tools' },
      ],
    }
    const files = { 'tokenizer.json': JSON.stringify(WORDS), 'tokenizer_config.json': JSON.stringify(config) }
    await inFolder(files, async (folder) => {
      using tokenizer = await HfTokenizer.fromFolder(folder)
      expect(tokenizer.specialTokens).toEqual({ eos_token: '<end>', pad_token: '<tag>' })
      expect([tokenizer.chatTemplate, tokenizer.namedTemplate('tool_use')]).toEqual([
        'of the configuration',
        'with tools',
      ])
      expect(tokenizer.namedTemplate('none')).toBeUndefined()
    })
    const beside = {
      ...files,
      'chat_template.jinja': 'of its own file',
      'additional_chat_templates/rag.jinja': 'with documents',
    }
    await inFolder(beside, async (folder) => {
      using tokenizer = await HfTokenizer.fromFolder(folder)
      expect([tokenizer.chatTemplate, tokenizer.namedTemplate('rag')]).toEqual([
        'of its own file',
        'with documents',
      ])
    })
  })

  it('takes vocabulary, special tokens and template of a GGUF file', () => {
    using tokenizer = HfTokenizer.fromGguf(ggufOfTokens('gpt2'))
    expect([...tokenizer.encode('abab<|end|>', { addedTokens: true }).ids]).toEqual([3, 3, 0])
    expect(tokenizer.specialTokens).toEqual({ eos_token: '<|end|>' })
    expect(tokenizer.chatTemplate).toBe('{{ eos_token }}')
    expect(() => HfTokenizer.fromGguf(ggufOfTokens('llama'))).toThrow(/^tokenizer.ggml.model must be "gpt2"/)
    expect(() => HfTokenizer.fromGguf(ggufOfTokens('gpt2').subarray(0, 100))).toThrow(
      expect.objectContaining({ code: 'CORRUPT' }),
    )
  })

  it('refuses files that are none, contradict themselves, or are not there', async () => {
    for (const json of ['', '[]', '{}', '{"model": 7}', null, 7]) {
      expect(() => HfTokenizer.fromJson(json), String(json)).toThrow(failing('MALFORMED'))
    }
    const processor = { type: 'BertProcessing', sep: ['[SEP]', 99], cls: ['<end>', 3] }
    expect(() => HfTokenizer.fromJson({ ...WORDS, post_processor: processor })).toThrow(failing('CORRUPT'))
    await expect(HfTokenizer.fromFolder('/no/such/folder')).rejects.toEqual(failing('IO'))
    await inFolder({ 'tokenizer.json/x': '' }, async (folder) => {
      await expect(HfTokenizer.fromFolder(folder)).rejects.toEqual(failing('CORRUPT'))
    })
  })

  it('goes to JSON and back', async () => {
    using tokenizer = await golden('unigram')
    const file = JSON.parse(await readFile(`${goldenFolder('unigram')}/tokenizer.json`, 'utf8'))
    expect(tokenizer.toJSON()).toEqual(file)
    using again = HfTokenizer.fromJson(tokenizer.toJSON())
    expect(again.encode('the quick fox')).toEqual(tokenizer.encode('the quick fox'))
  })

  it('takes ten megabytes of one message', async () => {
    using tokenizer = await golden('qwen2')
    const text = 'the quick brown fox '.repeat(500_000)
    const { ids, offsets } = tokenizer.encode(text)
    expect(offsets.at(-1)).toBe(text.length)
    expect(tokenizer.decode(ids)).toBe(text)
  })
})
