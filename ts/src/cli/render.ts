/** `fulmar render` and `fulmar tokenize`: what a policy sees, as text and as token ids. */

import { createRenderer, History, ORIGINS } from '../chat/index.js'
import { CharTokenizer } from '../tokenizer/index.js'
import { CliError, type CliIo, printJson, readInput, readJsonInput } from './io.js'

/** Flags of `fulmar render`. */
export interface RenderFlags {
  readonly messages: string
  readonly generationPrompt?: boolean
  readonly json?: boolean
}

/** Renders a JSON list of messages as ChatML over the character tokenizer. */
export async function render(flags: RenderFlags, io: CliIo): Promise<void> {
  const json = await readJsonInput('messages', flags.messages, io)
  if (!Array.isArray(json)) throw new CliError('MALFORMED', `messages must be a list: got ${typeof json}`)
  using tokenizer = new CharTokenizer()
  using renderer = createRenderer(tokenizer, { name: 'chatml' })
  const { messages } = History.fromChats(json)
  const rendered = renderer.render(messages, { addGenerationPrompt: flags.generationPrompt ?? false })
  const text = tokenizer.decode(rendered.ids)
  if (!flags.json) {
    io.stdout.write(text.endsWith('\n') ? text : `${text}\n`)
    return
  }
  const { ids, messageIndices, sampledMask, origins } = rendered
  const originOf = (code: number) => ORIGINS[code] ?? 'template'
  const columns = { ids: [...ids], messageIndices: [...messageIndices], sampledMask: [...sampledMask] }
  printJson(
    { family: 'chatml', tokenizer: 'char', text, ...columns, origins: [...origins].map(originOf) },
    io,
  )
}

/** Flags of `fulmar tokenize`. */
export interface TokenizeFlags {
  readonly decode?: boolean
  readonly json?: boolean
}

/** Prints the character tokenizer's ids of a text, or with `decode` the text of ids; `-` reads standard input. */
export async function tokenize(
  input: string,
  { decode = false, json = false }: TokenizeFlags,
  io: CliIo,
): Promise<void> {
  const text = input === '-' ? await readInput(input, io) : input
  using tokenizer = new CharTokenizer()
  if (decode) {
    const decoded = tokenizer.decode(parseIds(text))
    if (json) printJson({ text: decoded }, io)
    else io.stdout.write(`${decoded}\n`)
    return
  }
  const ids = [...tokenizer.encode(text).ids]
  if (json) printJson({ ids, vocabSize: tokenizer.vocabSize }, io)
  else io.stdout.write(`${ids.join(' ')}\n`)
}

function parseIds(text: string): Uint32Array {
  const words = text.split(/[\s,[\]]+/).filter((word) => word !== '')
  const wrong = words.find((word) => !/^\d{1,9}$/.test(word))
  if (wrong !== undefined) throw new CliError('MALFORMED', `ids must be numbers: got ${wrong}`)
  return Uint32Array.from(words, Number)
}
