/** `fulmar parse`: content, reasoning and tool calls of a completion. */

import { createRenderer, type ParsedResponse } from '../chat/index.js'
import { type CliIo, printJson, printTable, readInput } from './io.js'
import { familyConfig, readText } from './render.js'
import { openTokenizer, parseIds } from './tokenize.js'

/** Flags of the command. */
export interface ParseFlags {
  readonly family: string
  readonly tokenizer?: string
  readonly tools?: string
  readonly ids?: boolean
  readonly json?: boolean
}

/** Parses a completion from a file or standard input: text that spells markers, or with `ids` token ids. */
export async function parse(path: string, flags: ParseFlags, io: CliIo): Promise<void> {
  const input = await readInput(path, io)
  const tools = flags.tools === undefined ? [] : await readText('tools', flags.tools, io)
  using tokenizer = await openTokenizer(flags.tokenizer)
  using renderer = createRenderer(tokenizer, familyConfig(flags.family))
  const ids = flags.ids ? parseIds(input) : tokenizer.encode(input, { addedTokens: true }).ids
  const parsed = renderer.parse(ids, { tools })
  if (flags.json) printJson(parsed, io)
  else printTable(rowsOf(parsed), io)
}

function rowsOf(parsed: ParsedResponse): [string, string][] {
  const { content, reasoningContent, reasoningComplete, toolCalls, finished, overran } = parsed
  const rows: [string, string][] = [['content', JSON.stringify(content)]]
  if (reasoningContent !== null) {
    const state = reasoningComplete ? '' : ' (never closed)'
    rows.push(['reasoning', `${JSON.stringify(reasoningContent)}${state}`])
  }
  for (const { status, name, arguments: given, raw } of toolCalls) {
    const call = status === 'ok' ? `${name}(${given ?? ''})` : JSON.stringify(raw)
    rows.push(['tool call', `${status}: ${call}`])
  }
  const end = overran ? 'no: the content contains special tokens' : finished ? 'yes' : 'no stop token'
  return [...rows, ['finished', end]]
}
