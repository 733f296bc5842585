/** Fenced blocks of a reply as calls of the tools of an `MLGymEnv`. */

import type { ParsedCalls, ToolCall, ToolCallParser } from '../../tools/index.js'

/** Opening of a block: at least three backticks, a word, and for some a path. */
const OPENING = /^(`{3,})(bash|sh|python|write|edit|submit)(?:[ \t]+([^\r\n`]*?))?[ \t]*\r?\n/gm

/** Reads each block up to the next line that begins with its fence; blocks of other languages are text. */
export const ML_GYM_BLOCKS: ToolCallParser = {
  parse(content: string): ParsedCalls {
    const calls: ToolCall[] = []
    const texts: string[] = []
    let end = 0
    for (const match of content.matchAll(OPENING)) {
      const [opening, fence = '', name = '', path = ''] = match
      if (match.index < end) continue
      const start = match.index + opening.length
      // The line break before the closing fence may be that of the opening one.
      const close = content.indexOf(`\n${fence}`, start - 1)
      if (close < 0) break
      calls.push(callOf(name, path, content.slice(start, Math.max(start, close))))
      texts.push(content.slice(end, match.index))
      end = close + 1 + fence.length
    }
    texts.push(content.slice(end))
    return { text: texts.join('').trim(), calls, meta: { count: calls.length } }
  },
}

function callOf(name: string, path: string, body: string): ToolCall {
  if (name === 'submit') return { tool: 'submit', args: {}, tag: null }
  if (name === 'python') return { tool: 'python', args: { code: body }, tag: null }
  if (name === 'write') return { tool: 'write', args: { path, content: `${body}\n` }, tag: null }
  if (name !== 'edit') return { tool: 'bash', args: { command: body }, tag: null }
  return editOf(path, body.split('\n'))
}

/** The text that is there, and its replacement, between three marks. */
function editOf(path: string, lines: readonly string[]): ToolCall {
  const middle = lines.indexOf('=======')
  const isEdit = lines[0] === '<<<<<<<' && middle > 0 && lines.at(-1) === '>>>>>>>'
  if (isEdit) {
    const [old, replacement] = [lines.slice(1, middle).join('\n'), lines.slice(middle + 1, -1).join('\n')]
    return { tool: 'edit', args: { path, old, new: replacement }, tag: null }
  }
  const problem =
    'an edit must be <<<<<<<, the old text, =======, the new text and >>>>>>>, on lines of their own'
  return { tool: 'edit', args: { raw: lines.join('\n') }, tag: null, problem }
}
