/** Histories through chat templates: texts, ids and masks, in TorchRL's shapes. */

import { type MaskOptions, maskJson } from '../../chat/mask.js'
import { wellFormed } from '../../chat/message.js'
import { call, checkKnownKeys, checkTypedArray, describeValue, FulmarError } from '../../core/index.js'
import type { RawEncodedChats, RawTemplate } from '../../native/index.js'
import { type SelectedTemplate, Template, type TemplateJson, TemplateRegistry } from '../../template/index.js'
import { Ragged, Tensor, TensorDict } from '../../tensor/index.js'
import type { NativeTokenizer, PaddingOptions, TruncationOptions } from '../../tokenizer/index.js'
import type { History } from './history.js'
import type { Nested } from './nested.js'

/** Template of a history, and its inputs. */
export interface RenderingOptions {
  /**
   * The tokenizer: its chat template is the default, its special tokens are
   * variables of the template, and ids are its ids.
   * @default none
   */
  readonly tokenizer?: NativeTokenizer
  /** A template of your own, or its source. */
  readonly template?: Template | string
  /** The name of a template in the registry. */
  readonly templateName?: string
  /**
   * Registry that resolves names.
   * @default TemplateRegistry.builtin
   */
  readonly registry?: TemplateRegistry
  /**
   * Choice of the template without `template` and `templateName`. `strict`: the tokenizer's own template, or
   * an error. `torchrl`: TorchRL's guess by `nameOrPath`, with ChatML as the last resort.
   * @default 'strict'
   */
  readonly selection?: 'strict' | 'torchrl'
  /** The name or path that the tokenizer came from, for `selection: 'torchrl'`. */
  readonly nameOrPath?: string
  /**
   * Variables such as `bos_token`.
   * @default the tokenizer's
   */
  readonly specialTokens?: Readonly<Record<string, string>>
  /** The tools on offer, or the JSON text of their list, in which numbers keep their form. */
  readonly tools?: TemplateJson
  /** Documents for templates that cite, or the JSON text of their list. */
  readonly documents?: TemplateJson
  /** Any other variables of the template, or the JSON text of an object. */
  readonly templateKwargs?: TemplateJson
  /** Time of the template's clock, in UTC. Without it a template that asks for the time fails. */
  readonly now?: Date
}

/** Options of {@link History.applyChatTemplate}. */
export interface ChatTemplateOptions extends RenderingOptions {
  /**
   * If true, appends the opening of an assistant's turn.
   * @default true
   */
  readonly addGenerationPrompt?: boolean
  /**
   * If true, the text ends inside the final message, so that a model continues it; a name: inside that field.
   * @default false
   */
  readonly continueFinalMessage?: boolean | string
  /**
   * If true, returns ids.
   * @default true if `returnDict` or a mask is set
   */
  readonly tokenize?: boolean
  /**
   * If true, returns ids in a dictionary with their masks.
   * @default true if a mask is set
   */
  readonly returnDict?: boolean
  /**
   * If true, the dictionary holds `assistant_masks`.
   * @default true if `mask` is given
   */
  readonly returnAssistantTokensMask?: boolean
  /** Options of the assistant's mask. */
  readonly mask?: MaskOptions
  /**
   * Padding of the rows of a dictionary to one length; they stay ragged with `false`.
   * @default false
   */
  readonly padding?: false | PaddingOptions
  /**
   * Truncation of sequences.
   * @default false
   */
  readonly truncation?: false | TruncationOptions
  /**
   * If true, a sequence may begin with two beginning-of-sequence tokens.
   * @default false
   */
  readonly allowDoubleBos?: boolean
}

/** Options that ask for a dictionary. */
export type DictChatOptions = ChatTemplateOptions &
  (
    | { readonly returnDict: true }
    | { readonly returnAssistantTokensMask: true }
    | { readonly mask: MaskOptions }
  )

/** Options that ask for tensors of ids. */
export type TensorChatOptions = ChatTemplateOptions & { readonly tokenize: true; readonly returnDict?: false }

/** Options that ask for text. */
export type TextChatOptions = ChatTemplateOptions & {
  readonly tokenize?: false
  readonly returnDict?: false
  readonly returnAssistantTokensMask?: false
  readonly mask?: never
}

/** The names of {@link RenderingOptions}. */
export const RENDERING_KEYS = [
  'tokenizer',
  'template',
  'templateName',
  'registry',
  'selection',
  'nameOrPath',
  'specialTokens',
  'tools',
  'documents',
  'templateKwargs',
  'now',
] as const

const KEYS = [
  ...RENDERING_KEYS,
  'addGenerationPrompt',
  'continueFinalMessage',
  'tokenize',
  'returnDict',
  'returnAssistantTokensMask',
  'mask',
  'padding',
  'truncation',
  'allowDoubleBos',
]

/** Implements {@link History.applyChatTemplate}. */
export function applyTemplate(
  history: History,
  options: ChatTemplateOptions,
): TensorDict | Nested<Tensor<'i64'>> | Nested<string> {
  checkKnownKeys('options', options, KEYS)
  const { mask } = options
  const wantsMask = options.returnAssistantTokensMask ?? mask !== undefined
  const wantsDict = options.returnDict ?? wantsMask
  if (wantsMask && !wantsDict)
    throw incompatible('returnDict must not be false where a mask is asked for: got false')
  const asked = wantsMask ? { ...options, mask: mask ?? {} } : options
  if (!(options.tokenize ?? wantsDict)) return nested(history, (chats) => renderHistory(chats, asked))
  if (wantsDict) return dictOf(history, asked)
  return nested(history, (chats) => rowsOf(encodeHistory(chats, asked)))
}

/** The text of each conversation of a batch of any rank, in order. */
export function renderHistory(history: History, options: ChatTemplateOptions): string[] {
  const json = optionsJson(options)
  return withTemplate(options, (template) => history.withNative((native) => native.render(template, json)))
}

/** The ids of each conversation of a batch of any rank, in order, with the mask that `options.mask` asks for. */
export function encodeHistory(history: History, options: ChatTemplateOptions): RawEncodedChats {
  const json = optionsJson(options)
  const { tokenizer } = options
  if (tokenizer === undefined) throw incompatible('tokenizer must be given for ids: it is undefined')
  return withTemplate(options, (template) =>
    tokenizer.withNative((encoder) => history.withNative((native) => native.encode(template, encoder, json))),
  )
}

/**
 * Applies `of` to the rows of batches of rank 2, or to the one conversation; the lists are nested as the
 * batch.
 */
function nested<T>(history: History, of: (chats: History) => T[]): Nested<T> {
  if (history.rank > 2) return history.rows().map((row) => nested(row, of))
  const values = of(history)
  return history.rank === 1 ? (values[0] as T) : values
}

function rowsOf({ ids, offsets }: RawEncodedChats): Tensor<'i64'>[] {
  return Array.from({ length: offsets.length - 1 }, (_, row) => {
    const data = toI64(ids.subarray(offsets[row], offsets[row + 1]))
    return Tensor.from(data, { shape: [1, data.length] })
  })
}

/** The template that options ask for. */
function selectTemplate(options: RenderingOptions): SelectedTemplate {
  const {
    tokenizer,
    template,
    templateName,
    nameOrPath,
    selection,
    registry = TemplateRegistry.builtin,
  } = options
  const tokenizerTemplate = tokenizer?.chatTemplate
  const source = template instanceof Template ? undefined : template
  return registry.select({ template: source, name: templateName, tokenizerTemplate, nameOrPath, selection })
}

/** The compiled template that each registry, or each tokenizer for its own, was last asked for: most ask for it again. */
const COMPILED = new WeakMap<object, { readonly source: string; readonly template: Template }>()

function withTemplate<R>(options: RenderingOptions, body: (native: RawTemplate) => R): R {
  const { template, templateName, selection, tokenizer, registry = TemplateRegistry.builtin } = options
  if (template instanceof Template) return template.withNative(body)
  const isNamed = template === undefined && templateName !== undefined
  // Neither a tokenizer nor the built-in registry ever changes.
  const isOwn =
    !(template ?? templateName) && selection !== 'torchrl' && registry === TemplateRegistry.builtin
  const owner = isOwn && tokenizer ? tokenizer : registry
  const known = COMPILED.get(owner)
  if (known && owner === tokenizer) return known.template.withNative(body)
  const source = isNamed ? registry.source(templateName) : selectTemplate(options).source
  if (known?.source === source) return known.template.withNative(body)
  const compiled = new Template(source)
  COMPILED.set(owner, { source, template: compiled })
  return compiled.withNative(body)
}

function dictOf(history: History, options: ChatTemplateOptions): TensorDict {
  if (history.rank > 2) {
    throw new FulmarError(
      'SHAPE_MISMATCH',
      `history must have at most 2 dimensions for a dictionary: got ${history.rank}`,
    )
  }
  const { padding = false, tokenizer, mask } = options
  const { ids, offsets, assistantMask } = encodeHistory(history, options)
  const columns: Record<string, BigInt64Array<ArrayBuffer>> = {
    input_ids: toI64(ids),
    attention_mask: new BigInt64Array(ids.length).fill(1n),
    ...(mask && { assistant_masks: toI64(assistantMask) }),
  }
  const isBatch = history.rank === 2
  const dict = TensorDict.from({}, { batchSize: isBatch ? [offsets.length - 1] : [] })
  for (const [name, column] of Object.entries(columns)) {
    const values = Tensor.from(column)
    if (padding === false) {
      dict.set(name, isBatch ? Ragged.from(values, offsets) : values)
      continue
    }
    const value = name === 'input_ids' ? (padding.value ?? padId(tokenizer)) : 0
    const { tensor } = toPadded(Ragged.from(values, offsets), { ...padding, value })
    dict.set(name, isBatch ? tensor : tensor.select(0, 0))
  }
  return dict
}

/** Rows of one length, and how long each was. */
export interface PaddedRows {
  /** `[S, L]`. */
  readonly tensor: Tensor
  /** `[S]`. */
  readonly lengths: Uint32Array
}

/**
 * The rows as one dense tensor `[S, L]`, and the length of each: TorchRL's `as_padded_tensor`. Copies.
 * @throws {FulmarError} `EMPTY` for an empty list of rows; `OUT_OF_RANGE` if `value` does not fit the dtype or `multipleOf` is no integer from 1.
 *
 * @example
 * ```ts
 * import { Ragged, Tensor } from 'fulmar/tensor'
 * import { toPadded, toRagged } from 'fulmar/torchrl'
 * import assert from 'node:assert/strict'
 *
 * const rows = Ragged.fromRows([Tensor.from(Uint32Array.of(7, 8, 9)), Tensor.from(Uint32Array.of(5))])
 * const { tensor, lengths } = toPadded(rows, { side: 'left', value: 0, multipleOf: 4 })
 * assert.deepEqual(tensor.data, Uint32Array.of(0, 7, 8, 9, 0, 0, 0, 5))
 * assert.ok(toRagged(tensor, lengths, { side: 'left' }).equals(rows))
 * ```
 */
export function toPadded(
  rows: Ragged | readonly Tensor[],
  options: { readonly side: 'left' | 'right'; readonly value: number; readonly multipleOf?: number },
): PaddedRows {
  checkKnownKeys('options', options, ['side', 'value', 'multipleOf'])
  const { side, value, multipleOf = 1 } = options
  if (!Number.isInteger(multipleOf) || multipleOf < 1) {
    throw new FulmarError('OUT_OF_RANGE', `multipleOf must be an integer from 1: got ${multipleOf}`)
  }
  const ragged = rows instanceof Ragged ? rows : Ragged.fromRows(rows)
  const { offsets } = ragged
  const lengths = Uint32Array.from(
    { length: ragged.numRows },
    (_, row) => (offsets[row + 1] ?? 0) - (offsets[row] ?? 0),
  )
  const longest = lengths.reduce((most, length) => Math.max(most, length), 0)
  const width = Math.ceil(longest / multipleOf) * multipleOf
  if (width === longest) return { tensor: ragged.toPadded({ side, fill: value }), lengths }
  // A row that is as long as all shall be makes room, and goes again.
  const { dtype, shape } = ragged.values
  const filler = Tensor.zeros(dtype, [width, ...shape.slice(1)])
  const wider = Ragged.from(
    Tensor.cat([ragged.values, filler]),
    Uint32Array.of(...offsets, (shape[0] ?? 0) + width),
  )
  const tensor = wider.toPadded({ side, fill: value }).slice({ end: ragged.numRows })
  return { tensor, lengths }
}

/**
 * The rows of a padded tensor `[S, L]` without their padding: TorchRL's `as_nested_tensor`. Lengths are given, never
 * guessed from what pads. Copies.
 * @throws {FulmarError} `SHAPE_MISMATCH` if there is not one length a row; `OUT_OF_RANGE` if one is longer than `L`;
 * `UNKNOWN_NAME` for another side.
 *
 * @example
 * ```ts
 * import { Tensor } from 'fulmar'
 * import { toRagged } from 'fulmar/torchrl'
 * import assert from 'node:assert/strict'
 *
 * const padded = Tensor.from(Uint32Array.of(7, 8, 5, 0), { shape: [2, 2] })
 * const rows = toRagged(padded, Uint32Array.of(2, 1), { side: 'right' })
 * assert.deepEqual(rows.values.data, Uint32Array.of(7, 8, 5))
 * ```
 */
export function toRagged(
  padded: Tensor,
  lengths: Uint32Array,
  options: { readonly side: 'left' | 'right' },
): Ragged {
  checkKnownKeys('options', options, ['side'], ['side'])
  const { side } = options
  checkTypedArray('lengths', lengths, Uint32Array)
  const [numRows = 0, width = 0, ...inner] = padded.shape
  if (padded.shape.length < 2 || lengths.length !== numRows) {
    throw new FulmarError('SHAPE_MISMATCH', `lengths must be one a row, of ${numRows}: got ${lengths.length}`)
  }
  if (side !== 'left' && side !== 'right')
    throw new FulmarError('UNKNOWN_NAME', `side must be left or right: got ${describeValue(side)}`)
  const longest = lengths.reduce((most, length) => Math.max(most, length), 0)
  if (longest > width)
    throw new FulmarError('OUT_OF_RANGE', `lengths must be at most ${width}: got ${longest}`)
  const offsets = new Uint32Array(numRows + 1)
  const kept: number[] = []
  for (const [row, length] of lengths.entries()) {
    offsets[row + 1] = (offsets[row] ?? 0) + length
    const start = row * width + (side === 'left' ? width - length : 0)
    for (let at = start; at < start + length; at += 1) kept.push(at)
  }
  return Ragged.from(padded.reshape([numRows * width, ...inner]).indexSelect(0, kept), offsets)
}

/** The id of the tokenizer's padding token. @throws {FulmarError} `INCOMPATIBLE` if it has none. */
export function padId(tokenizer: NativeTokenizer | undefined): number {
  const token = tokenizer?.specialTokens.pad_token
  const id = token === undefined ? undefined : tokenizer?.idOf(token)
  if (id !== undefined) return id
  throw incompatible('padding.value must be given for a tokenizer without a padding token: it is undefined')
}

/** Ids as Python's tensors have them. */
export function toI64(values: Uint32Array | Uint8Array): BigInt64Array<ArrayBuffer> {
  const wide = new BigInt64Array(values.length)
  const halves = new Uint32Array(wide.buffer)
  // Every machine that runs this is little-endian: the low half comes first.
  for (let at = 0; at < values.length; at += 1) halves[2 * at] = values[at] ?? 0
  return wide
}

function optionsJson(options: ChatTemplateOptions): string {
  checkKnownKeys('options', options, KEYS)
  const { tokenizer, truncation = false, now, mask } = options
  if (truncation !== false) checkKnownKeys('truncation', truncation, ['maxLength', 'side'])
  const parts: Record<string, string | undefined> = {
    addGenerationPrompt: jsonOf(options.addGenerationPrompt),
    continueFinalMessage: jsonOf(options.continueFinalMessage),
    tools: jsonTextOf(options.tools),
    documents: jsonTextOf(options.documents),
    templateKwargs: jsonTextOf(options.templateKwargs),
    specialTokens: jsonOf(options.specialTokens ?? tokenizer?.specialTokens),
    now: jsonOf(now?.toISOString().slice(0, -1)),
    maxLength: jsonOf(truncation === false ? undefined : truncation.maxLength),
    truncationSide: jsonOf(truncation === false ? undefined : truncation.side),
    mask: jsonOf(mask && maskJson(mask)),
    allowDoubleBos: jsonOf(options.allowDoubleBos),
  }
  const given = Object.entries(parts).filter(([, text]) => text !== undefined)
  return `{${given.map(([name, text]) => `"${name}":${text}`).join(',')}}`
}

/** JSON text stays as it is, so that `1.0` stays `1.0`. */
function jsonTextOf(value: TemplateJson | undefined): string | undefined {
  if (typeof value !== 'string') return jsonOf(value)
  // What is no JSON value of its own would change the options around it.
  call(() => JSON.parse(value))
  return wellFormed(value)
}

function jsonOf(value: unknown): string | undefined {
  return call(() => JSON.stringify(value))
}

function incompatible(detail: string): FulmarError {
  return new FulmarError('INCOMPATIBLE', detail)
}
