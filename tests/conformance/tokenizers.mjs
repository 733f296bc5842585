/** Rows of a tokenizer: `tokenizer.json` in the same folder, and for batches `tokenizer_config.json`. */

import { existsSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { FulmarError } from 'fulmar'
import { DecodeStream, HfTokenizer, offsetsIn, padBatch } from 'fulmar/tokenizer'
import { textDifference } from './rendering.mjs'

const ENCODE = ['text', 'ids', 'offsets', 'decoded']
const DECODE = ['ids', 'skip_special_tokens', 'decoded', 'stream_chunks']
const BATCH = ['texts', 'padding_side', 'truncation_side', 'kwargs', 'input_ids', 'attention_mask']
const has = (row, names) => names.every((name) => name in row)

export const tokenizers = {
  topic: 'tokenizers',
  members: (row) =>
    has(row, DECODE)
      ? {
          input: 'id ids skip_special_tokens',
          expected: 'decoded stream_chunks',
          refusal: 'stream_error:streamed',
        }
      : {
          input: 'id text texts padding_side truncation_side pad_token_id kwargs',
          expected: 'ids offsets decoded decoded_skip_special input_ids attention_mask',
        },

  matches: (row) => [ENCODE, DECODE, BATCH].some((names) => has(row, names)),

  async prepare(folder) {
    const path = join(folder, 'tokenizer.json')
    if (!existsSync(path)) return undefined
    // `tokenizers` wrote rows of one text from tokenizer.json alone; transformers wrote batches from the folder.
    return {
      alone: HfTokenizer.fromJson(readFileSync(path, 'utf8')),
      whole: await HfTokenizer.fromFolder(folder),
      lengthMax: modelLengthMax(join(folder, 'tokenizer_config.json')),
    }
  },

  check({ value }, prepared) {
    if (prepared === undefined) return { skipped: 'tokenizer.json' }
    const { alone, whole, lengthMax } = prepared
    if (has(value, BATCH)) return checkBatch(value, whole, lengthMax)
    return has(value, ENCODE) ? checkEncode(value, alone) : checkDecode(value, alone)
  },
}

function checkEncode(row, tokenizer) {
  const { ids, offsets } = tokenizer.encode(row.text, { addedTokens: true })
  const places = offsetsIn(row.text, offsets, 'codePoints')
  return (
    listDifference('ids', row.ids, [...ids]) ??
    listDifference('offsets', row.offsets.flat(), [...places]) ??
    decodedDifference(row.decoded, tokenizer, ids, false) ??
    ('decoded_skip_special' in row
      ? decodedDifference(row.decoded_skip_special, tokenizer, ids, true)
      : undefined)
  )
}

function checkDecode(row, tokenizer) {
  const ids = Uint32Array.from(row.ids)
  return (
    decodedDifference(row.decoded, tokenizer, ids, row.skip_special_tokens) ??
    streamDifference(row, tokenizer)
  )
}

function decodedDifference(expected, tokenizer, ids, skipSpecial) {
  const decoded = tokenizer.decode(ids, { skipSpecial })
  return decoded === expected ? undefined : textDifference(expected, decoded)
}

/** The text of each id, up to the one that a stream refuses because it changes earlier text. */
function streamDifference(row, tokenizer) {
  const { ids, decoded, stream_chunks: chunks, stream_error: error, skip_special_tokens: skipSpecial } = row
  if (!error && chunks.length !== ids.length) return `${chunks.length} stream_chunks of ${ids.length} ids`
  const stream = new DecodeStream(tokenizer, { skipSpecial })
  try {
    const pieces = ids.slice(0, chunks.length).map((id) => stream.push(id))
    const difference = listDifference(
      'stream_chunks',
      chunks.map((chunk) => chunk ?? ''),
      pieces,
    )
    if (difference !== undefined) return difference
    if (error) return refusalDifference(() => stream.push(ids[chunks.length]), error)
    const given = pieces.join('')
    if (!decoded.startsWith(given)) return undefined
    const all = given + stream.finish()
    return all === decoded ? undefined : `the stream's end: ${textDifference(decoded, all)}`
  } finally {
    stream[Symbol.dispose]()
  }
}

function refusalDifference(body, expected) {
  try {
    return `expected the stream to fail (${expected}), got ${JSON.stringify(body())}`
  } catch (error) {
    if (error instanceof FulmarError && error.code === 'INCOMPATIBLE') return undefined
    throw error
  }
}

/** transformers' keywords, of which `padding` and `truncation` have several spellings each. */
function checkBatch(row, tokenizer, lengthMax) {
  const { padding = false, truncation, max_length, ...others } = row.kwargs
  const { pad_to_multiple_of: multipleOf = 1, add_special_tokens: addSpecialTokens = true, ...rest } = others
  const [unknown] = Object.keys(rest).filter((name) => !name.startsWith('return_') && name !== 'verbose')
  if (unknown !== undefined)
    return `kwargs.${unknown} must be known: padding, truncation, max_length, pad_to_multiple_of`
  const isCut = truncation ?? (max_length !== undefined && padding === false)
  const maxLength = max_length ?? lengthMax
  const isLimited = isCut && isCut !== 'do_not_truncate' && maxLength !== undefined
  const batch = tokenizer.encodeBatch(row.texts, {
    addedTokens: true,
    addSpecialTokens,
    truncation: isLimited && { maxLength, side: row.truncation_side },
  })
  const rows = row.texts.map((_, index) => batch.ids.slice(batch.rows[index], batch.rows[index + 1]))
  const length = padding === 'max_length' ? maxLength : Math.max(0, ...rows.map((ids) => ids.length))
  const isPadded = padding && padding !== 'do_not_pad' && length !== undefined
  const options = { side: row.padding_side, value: row.pad_token_id, length, multipleOf }
  const padded = rows.map((ids) =>
    isPadded ? padRow(ids, options) : [ids, new Uint8Array(ids.length).fill(1)],
  )
  const lists = (part) => padded.map((pair) => [...pair[part]])
  return (
    listDifference('input_ids', row.input_ids, lists(0)) ??
    listDifference('attention_mask', row.attention_mask, lists(1))
  )
}

/** transformers leaves a row that is longer than `padding='max_length'` as it is, where nothing cuts it. */
function padRow(ids, options) {
  const { length, multipleOf } = options
  if (ids.length > Math.ceil(length / multipleOf) * multipleOf)
    return [ids, new Uint8Array(ids.length).fill(1)]
  const one = { ids, offsets: new Uint32Array(2 * ids.length), rows: Uint32Array.of(0, ids.length) }
  const padded = padBatch(one, { ...options, length: Math.max(length, ids.length) })
  return [padded.ids, padded.attentionMask]
}

/** The file's `model_max_length`; `undefined` for transformers' "very large". */
function modelLengthMax(path) {
  const length = existsSync(path) ? JSON.parse(readFileSync(path, 'utf8')).model_max_length : undefined
  return length === undefined || length > 1e20 ? undefined : length
}

function listDifference(name, expected, got) {
  const [wanted, found] = [expected, got].map((list) => list.map((item) => JSON.stringify(item)))
  const at = Array.from({ length: Math.max(wanted.length, found.length) }, (_, index) => index).find(
    (index) => wanted[index] !== found[index],
  )
  return at === undefined ? undefined : `${name}[${at}]: expected ${wanted[at]}, got ${found[at]}`
}
