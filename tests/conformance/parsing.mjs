/**
 * Compares parsed messages with TorchRL's, which its own templates cannot always be read back by.
 *
 * A row must have the messages that TorchRL's parsers read (`history-original.mjs`). Where Fulmar differs on purpose, a rule below says how
 * they become Fulmar's, and what comes out must be equal.
 */

import { isDeepStrictEqual } from 'node:util'
import { originalMessages } from './history-original.mjs'
import { textDifference } from './rendering.mjs'

const CHATML = new Set(['chatml_format', 'qwen'])

/** The last text with which each family opens an assistant's turn. */
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
    // TorchRL's pattern for this family has one group more than its reader asks for.
    name: "falcon's own text can be read",
    applies: ({ template }) => template === 'falcon',
    rewrite: (_, { chat, text }) =>
      chat === undefined
        ? [...text.matchAll(/^(User|Assistant):(.*(?:\n(?!(?:User|Assistant):).*)*)/gm)].map(
            ([, word, content]) => message(word.toLowerCase(), content.trim()),
          )
        : chat
            .filter(({ role }) => role !== 'tool')
            .map(({ role, content }) => message(role, content.trim())),
  },
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
    // TorchRL drops the text before the first user.
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
    rewrite: withEmpty,
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

/** Compares what Fulmar read with what TorchRL read, by the rules where it differs. */
export function compareMessages(row, got, eos) {
  const original = originalMessages(row.template, row.text)
  const wrong = otherThan(original, row)
  if (wrong !== undefined) return wrong
  let expected = original.messages ?? []
  const used = []
  for (const rule of RULES) {
    if (isDeepStrictEqual(expected, got)) break
    if (!rule.applies(row, eos)) continue
    const rewritten = rule.rewrite(expected, row, { eos })
    if (!isDeepStrictEqual(rewritten, expected)) used.push(rule.name)
    expected = rewritten
  }
  if (!isDeepStrictEqual(expected, got)) return textDifference(show(expected), show(got))
  return used.length === 0 ? undefined : { byDecision: used.join('; ') }
}

/** Returns the difference between a row and TorchRL's parsers, if there is one. */
function otherThan(original, { parsed, parse_error: failure }) {
  const said = failure
    ? { error: failure.kind }
    : {
        messages: parsed.map(({ tool_calls, tool_responses, ...rest }) => ({
          ...rest,
          ...(tool_calls && { tool_calls }),
          ...(tool_responses && { tool_responses }),
        })),
      }
  return isDeepStrictEqual(original, said)
    ? undefined
    : `the original gives ${show(original)}, not ${show(said)}`
}

/** Error codes by TorchRL's exceptions. Messages are not compared. */
export function compareParseError(row, error) {
  const codes = { RuntimeError: 'MALFORMED', NotImplementedError: 'UNKNOWN_NAME' }
  const original = originalMessages(row.template, row.text)
  const wrong = otherThan(original, row)
  if (wrong !== undefined) return wrong
  if (original.error === undefined) return `expected messages, got ${error.code}: ${error.message}`
  return codes[original.error] === error.code ? undefined : `expected ${original.error}, got ${error.code}`
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

/** `messages` with complete and empty ones at their positions; text before the first turn stays there. */
function withEmpty(messages, { template, text }) {
  const { messages: all = [] } = originalMessages(template, text, { keepsEmpty: true })
  const turns = template === 'deepseek' && OPENINGS.deepseek.test(text) ? all.slice(0, -1) : all
  const rest = [...messages]
  const lead = rest.splice(0, rest.length - turns.filter(({ content }) => content !== '').length)
  return [...lead, ...turns.map((turn) => (turn.content === '' ? turn : rest.shift()))]
}

const show = (messages) => JSON.stringify(messages)
