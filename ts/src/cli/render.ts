/** `fulmar render`: what a policy sees of a conversation, as text and as token ids, and what of it is trained. */

import { stat } from 'node:fs/promises'
import { createRenderer, ORIGINS, type RendererConfig } from '../chat/index.js'
import { Template, TemplateRegistry } from '../template/index.js'
import { type NativeTokenizer, offsetsIn } from '../tokenizer/index.js'
import { CliError, type CliIo, printJson, readInput } from './io.js'
import { openTokenizer } from './tokenize.js'

/** Flags of the command. */
export interface RenderFlags {
  readonly messages: string
  readonly tools?: string
  readonly template?: string
  readonly family?: string
  readonly tokenizer?: string
  readonly generationPrompt?: boolean
  readonly mask?: boolean
  readonly json?: boolean
}

/** A stretch of text, and whether it is trained. */
type Piece = readonly [text: string, isTrained: boolean]

/** Renders a JSON list of messages with the renderer of a family, or with a chat template. */
export async function render(flags: RenderFlags, io: CliIo): Promise<void> {
  if (flags.messages === '-' && flags.tools === '-')
    throw new CliError('MALFORMED', 'messages and tools must not both be standard input: got - twice')
  const isTemplate = flags.template !== undefined || (flags.tokenizer !== undefined && !flags.family)
  await (isTemplate ? renderTemplate : renderFamily)(flags, io)
}

/** Renders to ids first, as a renderer has the origin of each. */
async function renderFamily(flags: RenderFlags, io: CliIo): Promise<void> {
  const { family = 'chatml', generationPrompt: addGenerationPrompt = false } = flags
  const messages = await readText('messages', flags.messages, io)
  const tools = flags.tools === undefined ? [] : await readText('tools', flags.tools, io)
  using tokenizer = await openTokenizer(flags.tokenizer)
  using renderer = createRenderer(tokenizer, familyConfig(family))
  const { ids, messageIndices, sampledMask, origins } = renderer.render(messages, {
    addGenerationPrompt,
    tools,
  })
  const text = tokenizer.decode(ids)
  if (!flags.json) return print(flags.mask ? maskedPieces(tokenizer, ids, sampledMask) : [[text, false]], io)
  const originOf = (code: number) => ORIGINS[code] ?? 'template'
  const columns = { ids: [...ids], messageIndices: [...messageIndices], sampledMask: [...sampledMask] }
  printJson({ family, text, ...columns, origins: [...origins].map(originOf) }, io)
}

/** Text first; ids where a tokenizer was named or came with the template. */
async function renderTemplate(flags: RenderFlags, io: CliIo): Promise<void> {
  const folder = await folderOf(flags)
  using tokenizer = folder === undefined ? undefined : await openTokenizer(folder)
  using template = new Template(await sourceOf(flags, tokenizer, io))
  if (flags.mask && !template.hasGeneration)
    throw new CliError(
      'INCOMPATIBLE',
      'template must have generation blocks for a mask: there is none; --family NAME needs none',
    )
  const messages = await readText('messages', flags.messages, io)
  const tools = flags.tools === undefined ? {} : { tools: await readText('tools', flags.tools, io) }
  const { text, assistantSpans } = template.render({
    messages,
    ...tools,
    addGenerationPrompt: flags.generationPrompt ?? false,
    specialTokens: tokenizer?.specialTokens ?? {},
    now: new Date(),
  })
  const spans = pairs(assistantSpans ?? new Uint32Array())
  if (!flags.json) return print(flags.mask ? spanPieces(text, spans) : [[text, false]], io)
  const shown = template.hasGeneration ? { text, spans } : { text }
  printJson(tokenizer ? { ...shown, ...tokensOf(tokenizer, text, template.hasGeneration, spans) } : shown, io)
}

/** The model folder whose tokenizer is meant: `--tokenizer`, else `--template` if that is a folder. */
async function folderOf({ tokenizer, template }: RenderFlags): Promise<string | undefined> {
  return tokenizer ?? (template !== undefined && (await isFolder(template)) ? template : undefined)
}

async function isFolder(path: string): Promise<boolean> {
  const found = await stat(path).catch(() => undefined)
  return found?.isDirectory() ?? false
}

/** A file, a model folder's own template, or a built-in name. Without `--template`, that of `--tokenizer`. */
async function sourceOf(
  { template, tokenizer: folder }: RenderFlags,
  tokenizer: NativeTokenizer | undefined,
  io: CliIo,
): Promise<string> {
  const path = template ?? folder ?? ''
  if (path === '-' || path.endsWith('.jinja')) return await readInput(path, io)
  if (!(await isFolder(path))) return TemplateRegistry.builtin.source(path)
  const own = path === (folder ?? path) ? tokenizer?.chatTemplate : await chatTemplateOf(path)
  if (own !== undefined) return TemplateRegistry.builtin.select({ tokenizerTemplate: own }).source
  const rule = 'must come with a chat template, or --template must name one'
  throw new CliError('INCOMPATIBLE', `${path} ${rule}: there is none`)
}

async function chatTemplateOf(folder: string): Promise<string | undefined> {
  using tokenizer = await openTokenizer(folder)
  return tokenizer.chatTemplate
}

/** Returns the ids of a rendered text and which of them are in a span: a token counts by its first character. */
function tokensOf(
  tokenizer: NativeTokenizer,
  text: string,
  hasSpans: boolean,
  spans: readonly (readonly [number, number])[],
): object {
  const { ids, offsets } = tokenizer.encode(text, { addedTokens: true })
  if (!hasSpans) return { ids: [...ids] }
  const starts = pairs(offsetsIn(text, offsets, 'utf16')).map(([start]) => start)
  const mask = starts.map((at) => Number(spans.some(([start, end]) => start <= at && at < end)))
  return { ids: [...ids], mask }
}

/** Runs of tokens that are trained or not, each decoded by itself. */
function maskedPieces(tokenizer: NativeTokenizer, ids: Uint32Array, mask: Uint8Array): Piece[] {
  const pieces: Piece[] = []
  for (let start = 0, end = 0; start < ids.length; start = end) {
    while (end < ids.length && mask[end] === mask[start]) end += 1
    pieces.push([tokenizer.decode(ids.subarray(start, end)), mask[start] === 1])
  }
  return pieces
}

function spanPieces(text: string, spans: readonly (readonly [number, number])[]): Piece[] {
  const pieces: Piece[] = []
  let at = 0
  for (const [start, end] of spans) {
    pieces.push([text.slice(at, start), false], [text.slice(start, end), true])
    at = end
  }
  return [...pieces, [text.slice(at), false]]
}

/** Trained text in green on a terminal, between double brackets elsewhere. */
function print(pieces: readonly Piece[], io: CliIo): void {
  const [open, close] = io.stdout.isTTY ? ['\u001b[32m', '\u001b[0m'] : ['[[', ']]']
  const shown = pieces.map(([text, isTrained]) => (isTrained && text !== '' ? open + text + close : text))
  const text = shown.join('')
  io.stdout.write(text.endsWith('\n') ? text : `${text}\n`)
}

function pairs(flat: Uint32Array): [number, number][] {
  return Array.from({ length: flat.length / 2 }, (_, index) => [
    flat[2 * index] ?? 0,
    flat[2 * index + 1] ?? 0,
  ])
}

/** JSON as it was written, so that `1.0` stays `1.0`. @throws {CliError} `MALFORMED` for invalid JSON. */
export async function readText(what: string, path: string, io: CliIo): Promise<string> {
  const text = await readInput(path, io)
  try {
    JSON.parse(text)
    return text
  } catch (error) {
    const why = error instanceof Error ? error.message : String(error)
    throw new CliError('MALFORMED', `${what} must be JSON: got ${path} (${why})`)
  }
}

/** The configuration of a family: its name, or JSON with its knobs. The core refuses unknown ones. */
export function familyConfig(family: string): RendererConfig {
  if (!family.startsWith('{')) return JSON.parse(JSON.stringify({ name: family }))
  try {
    return JSON.parse(family)
  } catch {
    throw new CliError('MALFORMED', `family must be a name or JSON: got ${family}`)
  }
}
