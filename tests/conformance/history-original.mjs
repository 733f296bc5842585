/**
 * Parses a text into messages as TorchRL 0.14.1 does, by the family of its template. A decision of `parsing.mjs` holds only where a row has
 * these messages, so that no others pass for a difference on purpose.
 */

/** Python's `$` also matches before a final line feed. */
const END = '(?=\\n?$)'
const FAMILIES = { chatml_format: chatml, qwen, dialogpt, falcon: () => [], deepseek, llama }

/**
 * The messages, or the class of the exception. `keepsEmpty` keeps messages that are complete and empty, which TorchRL drops in two families.
 */
export function originalMessages(template, text, { keepsEmpty = false } = {}) {
  const read = FAMILIES[template]
  if (read === undefined) return { error: 'NotImplementedError' }
  const messages = read(text, keepsEmpty)
  return messages.length === 0 ? { error: 'RuntimeError' } : { messages }
}

const strip = (text) => text.replace(/^[^\S\uFEFF]+|[^\S\uFEFF]+$/g, '')
const message = (role, content, isComplete) => ({ role, content, is_complete: isComplete })

function chatml(text) {
  const complete = [...text.matchAll(/<\|im_start\|>(.*?)\n(.*?)<\|(?:im_end|endoftext)\|>/gs)]
  const last = complete.at(-1)?.[0]
  const rest = last === undefined ? text : text.slice(text.lastIndexOf(last) + last.length)
  const open = new RegExp(`<\\|im_start\\|>(.*?)\\n(.*?)${END}`, 's').exec(rest)
  const blocks = complete.map(([, role, content]) => message(strip(role), strip(content), true))
  if (open !== null && (last === undefined || strip(rest) !== ''))
    blocks.push(message(strip(open[1]), strip(open[2]), false))
  return blocks.map((block) => ({ ...block, ...toolsIn(block.content) }))
}

function qwen(text) {
  const pattern = new RegExp(`<\\|im_start\\|>(.*?)(?:<\\|(?:im_end|endoftext)\\|>|${END})`, 'gs')
  return [...text.matchAll(pattern)].flatMap(([whole, block]) => {
    const [role, ...lines] = block.split('\n')
    if (lines.length === 0) return []
    const content = lines.join('\n')
    const isComplete = /<\|(?:im_end|endoftext)\|>$/.test(whole)
    return [{ ...message(strip(role), strip(content), isComplete), ...toolsIn(content) }]
  })
}

/** Calls and answers, which stay in the content as well. */
function toolsIn(content) {
  const calls = inner(content, 'tool_call').flatMap((text) => {
    try {
      return [JSON.parse(text)]
    } catch {
      return []
    }
  })
  const answers = inner(content, 'tool_response')
  return {
    ...(calls.length > 0 && { tool_calls: calls }),
    ...(answers.length > 0 && { tool_responses: answers }),
  }
}

const inner = (text, tag) =>
  [...text.matchAll(new RegExp(`<${tag}>\\n(.*?)\\n</${tag}>`, 'gs'))].map(([, between]) => between)

/** Each line is a message, a user's where it does not say otherwise. */
function dialogpt(text) {
  return strip(text)
    .split('\n')
    .map(strip)
    .filter(Boolean)
    .map((line) => {
      const [, word, content] = /^(Assistant|User):(.*)$/s.exec(line) ?? [undefined, 'User', line]
      return message(word.toLowerCase(), strip(content), true)
    })
}

function deepseek(text, keepsEmpty) {
  const bare = text
    .replace(/^<[^>]+>/, '')
    .replace(new RegExp(`<[^>]+>${END}`, 'g'), '')
    .replaceAll('REDACTED_SPECIAL_TOKEN', '')
  const pattern = /(User|Assistant):\s*(.*?)(?=User:|Assistant:|\n?$)/gs
  return [...bare.matchAll(pattern)]
    .map(([, word, content]) => message(word.toLowerCase(), strip(content), true))
    .filter(({ content }) => keepsEmpty || content !== '')
}

function llama(whole, keepsEmpty) {
  const text = whole.replace(/^<\|begin_of_text\|>/, '')
  const head = '<\\|header_start\\|>([\\p{L}\\p{N}_]+)<\\|header_end\\|>\\n\\n'
  const complete = [...text.matchAll(new RegExp(`${head}(.*?)<\\|eot\\|>`, 'gsu'))]
  const rest = complete.length === 0 ? text : text.slice(text.lastIndexOf('<|eot|>') + '<|eot|>'.length)
  const open = new RegExp(`${head}(.*?)${END}`, 'su').exec(rest)
  return [
    ...complete
      .map(([, role, content]) => message(role, strip(content), true))
      .filter(({ content }) => keepsEmpty || content !== ''),
    ...(open === null || strip(open[2]) === '' ? [] : [message(open[1], strip(open[2]), false)]),
  ]
}
