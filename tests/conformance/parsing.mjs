/**
 * Compares parsed messages with TorchRL's, which its own templates cannot always be read back by.
 *
 * Where Fulmar differs on purpose, a rule below says how TorchRL's messages become Fulmar's; what comes out must be
 * equal, so that an altered expectation fails all the same.
 */

import { isDeepStrictEqual } from 'node:util'
import { textDifference } from './rendering.mjs'

const CHATML = new Set(['chatml_format', 'qwen'])

/** What each family writes last when it opens an assistant's turn. */
const OPENINGS = {
  chatml_format: /<\|im_start\|>assistant\n$/,
  qwen: /<\|im_start\|>assistant\n$/,
  llama: /<\|header_start\|>assistant<\|header_end\|>\n\n$/,
  deepseek: /Assistant:$/,
  falcon: /Assistant:$/,
  dialogpt: /> $/,
}

const message = (role, content, isComplete = true) => ({ role, content, is_complete: isComplete })

/**
 * The rules, in the order in which they are applied. `rewrite` gives Fulmar's messages for TorchRL's; `eos` is the
 * end-of-sequence token, `got` what Fulmar read.
 */
const RULES = [
  {
    // TorchRL takes a dialogpt text for one line of a user, and leaves the token that ends turns in what it reads.
    name: 'the end-of-sequence token ends turns and is no content',
    applies: ({ template, text }, eos) =>
      template === 'deepseek' || (template === 'dialogpt' && eos !== undefined && text.includes(eos)),
    rewrite: (messages, { template }, { eos }) =>
      template === 'dialogpt'
        ? messages.flatMap((one) => (one.is_complete ? alternating(one, eos) : [one]))
        : withoutEnd(messages, eos),
  },
  {
    // TorchRL reads calls and answers but leaves their markup in the content: rendering writes them twice.
    name: 'tool calls and answers leave the content',
    applies: ({ template }) => CHATML.has(template),
    rewrite: (messages) => messages.flatMap(withoutMarkup),
  },
  {
    // TorchRL drops what stands before the first user.
    name: 'text before the first turn is the system message',
    applies: ({ template, text }) =>
      template === 'deepseek' && !/^(?:User|Assistant):/.test(withoutBegin(text)),
    rewrite: (messages, { text }) => {
      const [content] = withoutBegin(text).split(/\n\n(?:User|Assistant):/)
      return [message('system', content.trim()), ...messages]
    },
  },
  {
    // TorchRL drops messages without content in some families.
    name: 'empty messages are messages',
    applies: ({ template }) => ['llama', 'deepseek'].includes(template),
    rewrite: (messages, _, { got }) => withEmpty(messages, got),
  },
  {
    // TorchRL calls every message of this family complete.
    name: 'a last turn that nothing closes is not complete',
    applies: ({ template, text }) => template === 'deepseek' && !/>$|Assistant:$/.test(text.trimEnd()),
    rewrite: (messages) =>
      messages.map((one, index) => ({ ...one, is_complete: index < messages.length - 1 })),
  },
  {
    // TorchRL's families differ in what a bare opening at the end is: Python's `$` also matches before a last newline.
    name: 'a bare opening is an empty message that is not complete',
    applies: ({ template, text }) => OPENINGS[template]?.test(text) ?? false,
    rewrite: (messages) => {
      const opened = message('assistant', '', false)
      return isDeepStrictEqual(messages.at(-1), opened) ? messages : [...messages, opened]
    },
  },
]

/** Compares with `row.parsed`, or with what inverting the template must give where TorchRL's parser is known to fail. */
export function compareMessages(row, got, eos) {
  if (row.parse_error)
    return row.upstream_bug ? compareInverted(row, got) : `expected an error, got ${show(got)}`
  let expected = row.parsed.map(({ tool_calls, tool_responses, ...rest }) => ({
    ...rest,
    ...(tool_calls && { tool_calls }),
    ...(tool_responses && { tool_responses }),
  }))
  const used = []
  for (const rule of RULES) {
    if (isDeepStrictEqual(expected, got)) break
    if (!rule.applies(row, eos)) continue
    const rewritten = rule.rewrite(expected, row, { got, eos })
    if (!isDeepStrictEqual(rewritten, expected)) used.push(rule.name)
    expected = rewritten
  }
  if (!isDeepStrictEqual(expected, got)) return textDifference(show(expected), show(got))
  return used.length === 0 ? undefined : { byDecision: used.join('; ') }
}

/** Which code stands for TorchRL's exception; messages are for the reader. */
export function compareParseError({ parse_error: expected }, error) {
  const codes = { RuntimeError: 'MALFORMED', NotImplementedError: 'UNKNOWN_NAME', ValueError: 'MALFORMED' }
  if (!expected) return `expected messages, got ${error.code}: ${error.message}`
  return codes[expected.kind] === error.code ? undefined : `expected ${expected.kind}, got ${error.code}`
}

/** TorchRL cannot read falcon's texts at all. Fulmar gives the messages back that were rendered. */
function compareInverted({ template, chat, text }, got) {
  const byDecision = `${template}'s own text can be read`
  if (chat === undefined) return got.length > 0 ? { byDecision } : 'expected messages, got none'
  const shown = chat.filter(({ role }) => role !== 'tool')
  const expected = shown.map(({ role, content }) => message(role, content.trim()))
  if (OPENINGS[template]?.test(text)) expected.push(message('assistant', '', false))
  return isDeepStrictEqual(expected, got) ? { byDecision } : textDifference(show(expected), show(got))
}

const withoutBegin = (text) => text.replace(/^<[^<>\s]+>/, '')

function alternating({ content }, eos) {
  const turns = content.split(eos)
  const rest = turns.pop()
  if (rest !== '') turns.push(rest)
  return turns.map((turn, index) => message(index % 2 === 0 ? 'user' : 'assistant', turn.trim()))
}

/** Without the token that ends each assistant's content; any name between angle brackets where `eos` is not known. */
function withoutEnd(messages, eos) {
  const content = (text) => {
    const end = eos === undefined ? /<[^<>\s]+>$/.exec(text)?.[0] : eos
    return end && text.endsWith(end) ? text.slice(0, -end.length).trim() : text
  }
  return messages.map((one) => (one.role === 'assistant' ? { ...one, content: content(one.content) } : one))
}

function withoutMarkup({ tool_responses: answers, ...one }) {
  if (answers) return answers.map((answer) => ({ ...one, content: answer.trim() }))
  if (!one.tool_calls) return [one]
  const content = one.content.replace(/\s*<tool_call>\n(.*?)\n<\/tool_call>/gs, (block, call) =>
    isJsonObject(call) ? '' : block,
  )
  return [{ ...one, content: content.trim() }]
}

function isJsonObject(text) {
  try {
    return Object.getPrototypeOf(JSON.parse(text)) === Object.prototype
  } catch {
    return false
  }
}

/** `messages` with the complete empty ones of `got` where these stand. */
function withEmpty(messages, got) {
  const kept = [...messages]
  for (const [index, one] of got.entries()) {
    const isEmpty = one.content === '' && one.is_complete
    if (isEmpty && !isDeepStrictEqual(kept[index], one)) kept.splice(index, 0, one)
  }
  return kept
}

const show = (messages) => JSON.stringify(messages)
