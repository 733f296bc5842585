/** `fulmar tokenize`: a text as token ids, and back. */

import { CharTokenizer, HfTokenizer, type NativeTokenizer } from '../tokenizer/index.js'
import { CliError, type CliIo, printJson, readInput } from './io.js'

/** Flags of the command. */
export interface TokenizeFlags {
  readonly tokenizer?: string
  readonly addedTokens?: boolean
  readonly decode?: boolean
  readonly json?: boolean
}

/** Prints the ids of a text, or with `decode` the text of ids; `-` reads standard input. */
export async function tokenize(input: string, flags: TokenizeFlags, io: CliIo): Promise<void> {
  const { addedTokens = false, decode = false, json = false } = flags
  const text = input === '-' ? await readInput(input, io) : input
  using tokenizer = await openTokenizer(flags.tokenizer)
  if (decode) {
    const decoded = tokenizer.decode(parseIds(text))
    if (json) printJson({ text: decoded }, io)
    else io.stdout.write(`${decoded}\n`)
    return
  }
  const ids = [...tokenizer.encode(text, { addedTokens }).ids]
  if (json) printJson({ ids, vocabSize: tokenizer.vocabSize }, io)
  else io.stdout.write(`${ids.join(' ')}\n`)
}

/** The tokenizer of a model's folder; without one the character tokenizer. */
export async function openTokenizer(folder: string | undefined): Promise<NativeTokenizer> {
  return folder === undefined ? new CharTokenizer() : await HfTokenizer.fromFolder(folder)
}

/**
 * Parses ids separated by spaces or commas, or a JSON list.
 * @throws {CliError} `MALFORMED` for another text.
 */
export function parseIds(text: string): Uint32Array {
  const words = text.split(/[\s,[\]]+/).filter((word) => word !== '')
  const wrong = words.find((word) => !/^\d{1,9}$/.test(word))
  if (wrong !== undefined) throw new CliError('MALFORMED', `ids must be numbers: got ${wrong}`)
  return Uint32Array.from(words, Number)
}
