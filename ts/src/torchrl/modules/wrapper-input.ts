/** Input of a wrapper from a dictionary: the rows of a batch with their ids. */

import type { Message } from '../../chat/index.js'
import { describeValue, FulmarError } from '../../core/index.js'
import {
  type Json,
  NonTensorData,
  NonTensorStack,
  Ragged,
  Tensor,
  type TensorDict,
} from '../../tensor/index.js'
import type { NativeTokenizer } from '../../tokenizer/index.js'
import { History } from '../data/history.js'
import type { WrapperConfig } from './wrapper-options.js'

/** One prompt, or one whole sequence that is to be scored. */
export interface InputRow {
  /** Its tokens. */
  readonly ids: Uint32Array
  /** Text of the ids; absent for input as ids. */
  readonly text?: string
  /** The conversation that they were rendered from. */
  readonly chat?: readonly Message[]
  /** 1 at the assistant's tokens. */
  readonly assistantMask?: Uint8Array
}

/** The rows of a dictionary: one without a batch, else one an element. @throws {FulmarError} As {@link LLMWrapperBase.forward}. */
export function readRows(dict: TensorDict, config: WrapperConfig): InputRow[] {
  if (dict.batchSize.length > 1) {
    const rule = 'the input must have at most one batch dimension'
    throw new FulmarError('SHAPE_MISMATCH', `${rule}: got ${dict.batchSize.length}`)
  }
  if (!dict.has(config.inputKey)) {
    const keys = dict.leafKeys().map((key) => key.join('.'))
    const rule = `Expected '${config.inputKey.join('.')}' key for ${config.inputMode} input mode`
    throw new FulmarError('UNKNOWN_NAME', `${rule}, but found keys: ${keys.join(', ') || 'none'}`)
  }
  if (config.inputMode === 'tokens') return tokenRows(dict, config)
  const { tokenizer } = config
  if (tokenizer === undefined)
    throw new FulmarError('INCOMPATIBLE', 'tokenizer must be given: it is undefined')
  if (config.inputMode === 'text') return textRows(dict, tokenizer, config)
  return historyRows(dict, tokenizer, config)
}

function historyRows(dict: TensorDict, tokenizer: NativeTokenizer, config: WrapperConfig): InputRow[] {
  const chats = valuesAt(dict, config.inputKey).map((value, row) => chatOf(value, row))
  if (chats.length === 0) return []
  const held = config.generate && config.preferTokens ? heldPrompts(dict, config) : undefined
  using history = History.fromChats(chats)
  const options = { ...config.rendering, tokenizer, addGenerationPrompt: config.generate }
  if (held) {
    return held.map((ids, row) => ({ ids, text: tokenizer.decode(ids), chat: chats[row] ?? [] }))
  }
  const texts = history.applyChatTemplate(options) as readonly string[]
  const { ids, masks } = encode(history, options, config.generate)
  return chats.map((chat, row) => {
    const mask = masks?.[row]
    return {
      ids: ids[row] ?? new Uint32Array(0),
      text: texts[row] ?? '',
      chat,
      ...(mask && { assistantMask: mask }),
    }
  })
}

/** The ids of each conversation; with the assistant's mask where they are scored and the template marks it. */
function encode(
  history: History,
  options: Parameters<History['applyChatTemplate']>[0],
  generate: boolean,
): { readonly ids: Uint32Array[]; readonly masks?: Uint8Array[] } {
  const plain = () => ({
    ids: idRows(history.applyChatTemplate({ ...options, returnDict: true }).ragged('input_ids')),
  })
  if (generate) return plain()
  try {
    const dict = history.applyChatTemplate({ ...options, mask: { allowEmpty: true } })
    const masks = idRows(dict.ragged('assistant_masks')).map((row) => Uint8Array.from(row))
    return { ids: idRows(dict.ragged('input_ids')), masks }
  } catch (error) {
    if (!(error instanceof FulmarError) || error.code !== 'INCOMPATIBLE') throw error
    return plain()
  }
}

function heldPrompts(dict: TensorDict, { roots }: WrapperConfig): Uint32Array[] | undefined {
  const key = [...roots.tokens, 'prompt']
  return dict.has(key) ? fieldRows(dict, key, []) : undefined
}

function textRows(dict: TensorDict, tokenizer: NativeTokenizer, config: WrapperConfig): InputRow[] {
  const texts = valuesAt(dict, config.inputKey).map((value, row) => {
    if (typeof value === 'string') return value
    throw new FulmarError('MALFORMED', `the text of row ${row} must be text: got ${describeValue(value)}`)
  })
  const { addSpecialTokens } = config
  const { ids, rows } = tokenizer.encodeBatch(texts, { addedTokens: true, addSpecialTokens })
  return texts.map((text, row) => {
    const mask = config.generate ? undefined : heldAssistantMask(dict, row, config)
    return { ids: ids.slice(rows[row], rows[row + 1]), text, ...(mask && { assistantMask: mask }) }
  })
}

function tokenRows(dict: TensorDict, config: WrapperConfig): InputRow[] {
  const { roots, inputKey, attentionMaskKey } = config
  const masks = [[...roots.masks, 'all_attention_mask'], attentionMaskKey]
  return fieldRows(dict, inputKey, masks).map((ids, row) => {
    const mask = config.generate ? undefined : heldAssistantMask(dict, row, config)
    return { ids, ...(mask && { assistantMask: mask }) }
  })
}

/**
 * Returns the mask of each row: all tokens, those after `tokens.prompt` (the assistant's without it), the
 * assistant's, or the mask of the dictionary under a key. A row's first token is never masked.
 * @throws {FulmarError} As {@link LLMWrapperBase.getDist}.
 */
export function maskRows(
  dict: TensorDict,
  rows: readonly InputRow[],
  which: 'all' | 'response' | 'assistant' | readonly string[],
  config: WrapperConfig,
): Uint8Array[] {
  const marks = rows.map((row, at) => {
    if (which === 'all') return new Uint8Array(row.ids.length).fill(1)
    if (which === 'assistant') return assistantOf(row, at)
    if (which === 'response') return responseOf(dict, row, at, config)
    const mask = fieldRows(dict, which, [[...config.roots.masks, 'all_attention_mask']])[at]
    return Uint8Array.from(mask ?? [], (flag) => Number(flag !== 0))
  })
  for (const [at, { ids }] of rows.entries()) {
    const mask = marks[at]
    if (mask?.length !== ids.length) {
      const rule = `the mask of row ${at} must cover its ${ids.length} tokens`
      throw new FulmarError('SHAPE_MISMATCH', `${rule}: got ${mask?.length}`)
    }
    mask.fill(0, 0, 1)
  }
  return marks
}

function assistantOf({ assistantMask }: InputRow, at: number): Uint8Array {
  if (assistantMask) return assistantMask.slice()
  const rule = `row ${at} must have an assistant's mask (inputMode 'history' makes one where the template tells)`
  throw new FulmarError('INCOMPATIBLE', `${rule}: there is none`)
}

function responseOf(dict: TensorDict, row: InputRow, at: number, { roots }: WrapperConfig): Uint8Array {
  const key = [...roots.tokens, 'prompt']
  if (!dict.has(key)) return assistantOf(row, at)
  const prompt = fieldRows(dict, key, [[...roots.masks, 'all_attention_mask']])[at]
  return new Uint8Array(row.ids.length).fill(1, prompt?.length)
}

/** The assistant's mask of a row that the dictionary holds, without the padding. */
function heldAssistantMask(dict: TensorDict, row: number, { roots }: WrapperConfig): Uint8Array | undefined {
  const key = [...roots.masks, 'all_assistant_mask']
  if (!dict.has(key)) return undefined
  const mask = fieldRows(dict, key, [[...roots.masks, 'all_attention_mask']])[row]
  return mask && Uint8Array.from(mask)
}

/** The rows of a tensor or of a ragged one; those of a padded tensor are what the first mask of `maskKeys` that is there marks. */
function fieldRows(
  dict: TensorDict,
  key: readonly string[],
  maskKeys: readonly (readonly string[])[],
): Uint32Array[] {
  const field = dict.get(key)
  if (field instanceof Ragged) return idRows(field)
  if (!(field instanceof Tensor)) {
    const kind = field instanceof NonTensorData || field instanceof NonTensorStack ? 'values' : 'a dictionary'
    throw new FulmarError('MALFORMED', `${key.join('.')} must be a tensor of tokens: got ${kind}`)
  }
  if (field.shape.length !== dict.batchSize.length + 1) {
    const rule = `${key.join('.')} must have one dimension behind the batch`
    throw new FulmarError('SHAPE_MISMATCH', `${rule}: got ${field.shape.length - dict.batchSize.length}`)
  }
  const width = field.shape.at(-1) ?? 0
  const ids = numbersOf(field)
  const rows = Array.from({ length: dict.batchSize[0] ?? 1 }, (_, row) =>
    ids.slice(row * width, (row + 1) * width),
  )
  const maskKey = maskKeys.find((one) => dict.get(one) instanceof Tensor)
  if (maskKey === undefined) return rows
  const mask = dict.tensor(maskKey)
  // A mask over prompts with their responses begins with that of the prompts.
  const maskWidth = mask.shape.at(-1) ?? 0
  if (mask.shape.length !== field.shape.length || maskWidth < width) {
    const [want, got] = [field, mask].map(({ shape }) => `[${shape.join(', ')}]`)
    throw new FulmarError('SHAPE_MISMATCH', `${maskKey.join('.')} must cover ${want}: got ${got}`)
  }
  const marks = numbersOf(mask)
  return rows.map((row, at) => row.filter((_, place) => marks[at * maskWidth + place] !== 0))
}

function idRows(rows: Ragged): Uint32Array[] {
  const [ids, { offsets }] = [numbersOf(rows.values), rows]
  return Array.from({ length: rows.numRows }, (_, row) => ids.slice(offsets[row], offsets[row + 1]))
}

function numbersOf(tensor: Tensor): Uint32Array {
  return Uint32Array.from(
    tensor.data as Iterable<number | bigint> as Iterable<number>,
    (id: number | bigint) => {
      if (id >= 0 && id < 2 ** 32 && Number.isInteger(Number(id))) return Number(id)
      throw new FulmarError('OUT_OF_RANGE', `ids must be integers from 0 below 2^32: got ${id}`)
    },
  )
}

/** The value of each row; one that the batch shares, for each. */
function valuesAt(dict: TensorDict, key: readonly string[]): readonly Json[] {
  const entry = dict.get(key)
  const [count] = dict.batchSize
  if (entry instanceof NonTensorData) return new Array<Json>(count ?? 1).fill(entry.value)
  if (entry instanceof NonTensorStack) return entry.values
  throw new FulmarError(
    'MALFORMED',
    `${key.join('.')} must hold texts or histories: got a tensor or a dictionary`,
  )
}

/** A conversation; one message is a conversation of one. */
function chatOf(value: Json, row: number): readonly Message[] {
  const isMessage = (one: Json): boolean => typeof one === 'object' && one !== null && !Array.isArray(one)
  if (isMessage(value)) return [value as unknown as Message]
  if (Array.isArray(value) && value.length > 0 && value.every(isMessage)) return value as unknown as Message[]
  throw new FulmarError('MALFORMED', `Expected History object at row ${row}: got ${describeValue(value)}`)
}
