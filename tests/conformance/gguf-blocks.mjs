/** Compares blocks of GGUF with what the package `gguf` makes of them: each is the embedding of a token of a model that is one file in memory. */

import { Decoder } from 'fulmar'

/** Types by number: name, elements and bytes of a block. */
const TYPES = {
  0: ['F32', 1, 4],
  1: ['F16', 1, 2],
  2: ['Q4_0', 32, 18],
  3: ['Q4_1', 32, 20],
  6: ['Q5_0', 32, 22],
  7: ['Q5_1', 32, 24],
  8: ['Q8_0', 32, 34],
  14: ['Q6_K', 256, 210],
  30: ['BF16', 1, 2],
}

export const ggufBlocks = {
  topic: 'blocks of GGUF',
  members: { input: 'name note hex', expected: 'type type_id block_elements block_bytes values_f32' },
  // Of the numbers of F16 neighbours are 1e-3 apart.
  tolerance: () => ({ relative: 0, absolute: 0.01 }),
  matches: (row) => ['type_id', 'hex', 'values_f32'].every((name) => Object.hasOwn(row, name)),
  prepare: () => undefined,
  check: ({ value: row }) => ofBlock(row),
}

async function ofBlock({
  type,
  type_id: id,
  block_elements: elements,
  block_bytes: size,
  hex,
  values_f32: want,
}) {
  const known = TYPES[id]
  if (known === undefined) return `the type ${id} must be known`
  if (String([type, elements, size]) !== String(known))
    return `the type ${id} is ${known}, not ${[type, elements, size]}`
  const bytes = Buffer.from(hex, 'hex')
  const width = (bytes.length / size) * elements
  if (want.length !== width) return `${bytes.length} bytes are ${width} values, not ${want.length}`
  const decoder = await Decoder.fromGguf(fileOf(id, bytes, width))
  const got = embeddingOf(await decoder.toSafetensors())
  decoder[Symbol.dispose]()
  const at = want.findIndex((value, at) => !Object.is(got[at] + 0, Math.fround(Number(value)) + 0))
  return at < 0 ? undefined : `value ${at} is ${got[at]}, not ${want[at]}`
}

/** The first row of the embeddings in a file of safetensors. */
function embeddingOf(file) {
  const view = new DataView(file.buffer, file.byteOffset, file.byteLength)
  const length = Number(view.getBigUint64(0, true))
  const header = JSON.parse(new TextDecoder().decode(file.subarray(8, 8 + length)))
  const { dtype, shape, data_offsets: offsets } = header['model.embed_tokens.weight']
  if (dtype !== 'F32') throw new Error(`embeddings must be F32: got ${dtype}`)
  return Array.from({ length: shape[1] }, (_, at) => view.getFloat32(8 + length + offsets[0] + 4 * at, true))
}

const ALIGNMENT = 32
const VOCAB = 2

/** A model of one layer of zeros, with a block as the embedding of each token. */
function fileOf(type, block, width) {
  const square = [width, width]
  const zeros = (name, shape) => ({
    name,
    shape,
    type: 0,
    bytes: Buffer.alloc(4 * shape.reduce((a, b) => a * b)),
  })
  const tensors = [
    {
      name: 'token_embd.weight',
      shape: [width, VOCAB],
      type,
      bytes: Buffer.concat(Array(VOCAB).fill(block)),
    },
    zeros('output_norm.weight', [width]),
    ...['attn_norm', 'ffn_norm'].map((name) => zeros(`blk.0.${name}.weight`, [width])),
    ...['attn_q', 'attn_k', 'attn_v', 'attn_output', 'ffn_gate', 'ffn_up', 'ffn_down'].map((name) =>
      zeros(`blk.0.${name}.weight`, square),
    ),
  ]
  const entries = {
    'general.architecture': text('llama'),
    'llama.block_count': u32(1),
    'llama.context_length': u32(8),
    'llama.embedding_length': u32(width),
    'llama.feed_forward_length': u32(width),
    'llama.attention.head_count': u32(1),
    'llama.attention.head_count_kv': u32(1),
    'llama.attention.layer_norm_rms_epsilon': f32(1e-5),
    'llama.rope.freq_base': f32(10_000),
    'llama.rope.dimension_count': u32(width),
    'llama.vocab_size': u32(VOCAB),
  }
  let offset = 0
  const infos = tensors.map(({ name, shape, type: kind, bytes }) => {
    const info = [string(name), u32Of(shape.length), ...shape.map(u64Of), u32Of(kind), u64Of(offset)]
    offset += padded(bytes).length
    return Buffer.concat(info)
  })
  const head = Buffer.concat([
    Buffer.from('GGUF'),
    u32Of(3),
    u64Of(tensors.length),
    u64Of(Object.keys(entries).length),
    ...Object.entries(entries).map(([key, value]) => Buffer.concat([string(key), value])),
    ...infos,
  ])
  return Buffer.concat([padded(head), ...tensors.map(({ bytes }) => padded(bytes))])
}

function written(size, write) {
  const buffer = Buffer.alloc(size)
  write(buffer)
  return buffer
}

const u32Of = (value) => written(4, (buffer) => buffer.writeUInt32LE(value))
const u64Of = (value) => written(8, (buffer) => buffer.writeBigUInt64LE(BigInt(value)))
const string = (value) => Buffer.concat([u64Of(Buffer.byteLength(value)), Buffer.from(value)])
// The values of entries, each behind the number of its type.
const text = (value) => Buffer.concat([u32Of(8), string(value)])
const u32 = (value) => Buffer.concat([u32Of(4), u32Of(value)])
const f32 = (value) => Buffer.concat([u32Of(6), written(4, (buffer) => buffer.writeFloatLE(value))])
const padded = (bytes) => Buffer.concat([bytes, Buffer.alloc(-bytes.length & (ALIGNMENT - 1))])
