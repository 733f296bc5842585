/** Rows of TorchRL's `History`: rendering and parsing back, masks, the choice of a template, append and extend. */

import { readFile } from 'node:fs/promises'
import { FulmarError, HfTokenizer } from 'fulmar'
import { TemplateRegistry } from 'fulmar/chat'
import { History } from 'fulmar/torchrl'
import { compareMessages, compareParseError } from './parsing.mjs'
import { textDifference } from './rendering.mjs'
import { rowFile } from './row-file.mjs'

export const history = {
  topic: 'history',
  members: ({ kind }) => ({
    input: `kind case template chat_template tokenizer tokenizer_chat_template special_tokens chat add_generation_prompt name_or_path
      upstream_bug ${kind === 'from_text' ? 'text' : ''}`,
    expected: `parsed input_ids attention_mask assistant_mask masked_text result ${kind === 'from_text' ? '' : 'text'}`,
    refusal: 'parse_error:parsed',
  }),

  matches: (row) => Object.hasOwn(KINDS, row.kind),

  prepare: (folder) => new Siblings(folder),

  async check(row, siblings) {
    const { tokenizer: name } = row.value
    const tokenizer = name === undefined ? undefined : await siblings.tokenizer(name)
    if (name !== undefined && tokenizer === undefined) return { skipped: `tokenizers/${name}/tokenizer.json` }
    return KINDS[row.value.kind](row, tokenizer, siblings)
  },
}

const KINDS = {
  round_trip: roundTrip,
  assistant_mask: mask,
  assistant_mask_fallback: mask,
  from_text: ({ value }) => parse(value, value.text, undefined),
  template_selection: select,
  ops,
}

/** The files next to the golden file: tokenizers and the templates of other projects. */
class Siblings {
  #folder
  #tokenizers = new Map()

  constructor(folder) {
    this.#folder = folder
  }

  tokenizer(name) {
    const folder = rowFile(this.#folder, `tokenizers/${name}`)
    if (folder === undefined) return undefined
    if (!this.#tokenizers.has(name)) this.#tokenizers.set(name, HfTokenizer.fromFolder(folder))
    return this.#tokenizers.get(name)
  }

  /** A template by name: the registry's own, or else a file of another project. */
  async template(name) {
    if (TemplateRegistry.builtin.names.includes(name)) return { templateName: name }
    const path = rowFile(this.#folder, `templates/${name.replace(/\.jinja$/, '')}.jinja`)
    return path === undefined ? { templateName: name } : { template: await readFile(path, 'utf8') }
  }
}

async function roundTrip(row, tokenizer, siblings) {
  const { value } = row
  const text = History.fromChats(row.raw('chat')).applyChatTemplate({
    ...(await siblings.template(value.template)),
    specialTokens: value.special_tokens,
    addGenerationPrompt: value.add_generation_prompt,
  })
  if (text !== value.text) return textDifference(value.text, text)
  return parse(value, text, tokenizer)
}

function parse(row, text, tokenizer) {
  let got
  try {
    const parsed = History.fromText(text, {
      templateName: row.template,
      ...(tokenizer && { tokenizer }),
    })
    got = parsed.messages.map((message) => ({ ...message, is_complete: message.is_complete !== false }))
  } catch (error) {
    if (!(error instanceof FulmarError)) throw error
    return compareParseError(row, error)
  }
  return compareMessages(row, got, tokenizer?.specialTokens.eos_token)
}

async function mask(row, tokenizer, siblings) {
  const { value } = row
  const chat = History.fromChats(row.raw('chat'))
  const options = {
    tokenizer,
    ...(value.chat_template === undefined
      ? await siblings.template(value.template)
      : { template: value.chat_template }),
    ...(value.special_tokens && { specialTokens: value.special_tokens }),
    addGenerationPrompt: value.add_generation_prompt ?? false,
    // TorchRL gives masks of zeros without a word.
    mask: { preset: 'torchrl', allowEmpty: true },
  }
  const dict = chat.applyChatTemplate(options)
  const [ids, marks] = ['input_ids', 'assistant_masks'].map((key) =>
    Array.from(dict.tensor(key).data, Number),
  )
  const attention = Array.from(dict.tensor('attention_mask').data, Number)
  const wrong = difference('input_ids', value.input_ids, ids)
  if (wrong !== undefined) return wrong
  if (value.attention_mask && !attention.every((bit, t) => bit === value.attention_mask[t]))
    return difference('attention_mask', value.attention_mask, attention)
  const masked = difference('assistant_mask', value.assistant_mask, marks)
  const isSearch = value.chat_template !== undefined && !/\{%-?\s*generation\b/.test(value.chat_template)
  if (isSearch) {
    const { mask: _, ...plain } = options
    const text = chat.applyChatTemplate(plain)
    const searched = searchMask(text, value.chat, tokenizer.encode(text, { addedTokens: true }))
    const other = difference('assistant_mask', value.assistant_mask, searched)
    if (other !== undefined) return other
    // TorchRL looks for each assistant's content from the last find on, so that the same words of a user, or of the
    // template, are marked instead. Fulmar marks what the assistant's turn holds.
    if (masked !== undefined)
      return { byDecision: 'a mask marks the assistant, not the first text that is equal' }
  }
  if (masked !== undefined) return masked
  if (value.masked_text === undefined) return undefined
  const text = tokenizer.decode(Uint32Array.from(ids.filter((_, t) => marks[t] === 1)))
  return text === value.masked_text ? undefined : textDifference(value.masked_text, text)
}

/** TorchRL's mask for templates without `generation` blocks: a search for contents with a moving cursor. */
function searchMask(text, chat, { ids, offsets }) {
  const marks = new Array(ids.length).fill(0)
  const bytes = (end) => Buffer.byteLength(text.slice(0, end))
  let cursor = 0
  for (const { role, content } of chat) {
    const start = role === 'assistant' && content ? text.indexOf(content, cursor) : -1
    if (start < 0) continue
    cursor = start + content.length
    const [from, to] = [bytes(start), bytes(cursor)]
    for (const t of marks.keys()) if (offsets[2 * t] < to && offsets[2 * t + 1] > from) marks[t] = 1
  }
  return marks
}

function difference(name, expected, got) {
  if (`${expected}` === `${got}`) return undefined
  const at = got.findIndex((id, t) => id !== expected[t])
  const from = Math.max(0, at - 3)
  const show = (list) => JSON.stringify(list.slice(from, from + 12))
  return `${name} part at ${at}: expected …${show(expected)}, got …${show(got)} (${expected.length} and ${got.length})`
}

/** The rows were made with SmolLM2's tokenizer, whatever its name said; only these of its tokens are in templates. */
const SELECTION_TOKENS = { bos_token: '<|im_start|>', eos_token: '<|im_end|>' }

function select(row) {
  const { value } = row
  const { source } = TemplateRegistry.builtin.select({
    tokenizerTemplate: value.tokenizer_chat_template ?? undefined,
    nameOrPath: value.name_or_path,
    selection: 'torchrl',
  })
  const text = History.fromChats(row.raw('chat')).applyChatTemplate({
    template: source,
    specialTokens: value.special_tokens ?? SELECTION_TOKENS,
    addGenerationPrompt: value.add_generation_prompt ?? false,
  })
  return text === value.text ? undefined : textDifference(value.text, text)
}

const said = (pairs) => pairs.map(([role, content]) => ({ role, content }))
const SHORT = said([
  ['user', 'Hi'],
  ['assistant', 'Yo!'],
])
const LONG = said([
  ['system', 'Sys.'],
  ['user', 'Hi'],
  ['assistant', 'Yo!'],
  ['user', 'Bye'],
  ['assistant', 'Ciao'],
])
const NEW = { role: 'user', content: 'new' }

/** The rows name what was done to the conversation of five messages, and hold what came of it. */
const OPS = {
  append_rank1_inplace(held) {
    const returned = held.append(NEW, { inPlace: true })
    return returned === held ? seen(held) : 'another object'
  },
  append_rank1_outplace: (held) => ({ returned: seen(held.append(NEW)), source: seen(held) }),
  extend_rank1: (held) => seen(held.extend(SHORT)),
}

function ops({ value }) {
  if (!Object.hasOwn(OPS, value.case)) return `case must be one of ${Object.keys(OPS)}: got ${value.case}`
  const got = OPS[value.case](History.fromChats(LONG))
  const [left, right] = [value.result, got].map((result) => JSON.stringify(result))
  return left === right ? undefined : textDifference(left, right)
}

function seen({ shape, messages }) {
  const fields = ({ role, content, is_complete = true }) => ({ role, content, is_complete })
  return { shape, messages: messages.map(fields) }
}
