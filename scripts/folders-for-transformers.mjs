/**
 * `node scripts/folders-for-transformers.mjs FOLDER`: saves a small decoder of every family, in both dtypes, with a head that reads one number,
 * with an adapter in its folder and with one in a folder of its own, and one with a tokenizer and a template, each as Hugging Face lays them
 * out, with tokens and what they score; for scripts/folders-in-transformers.py.
 */

import { copyFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { AdamW, Decoder, HfTokenizer } from 'fulmar'

const FAMILIES = ['llama', 'qwen2', 'qwen3']
const SHAPE = {
  ...{ vocab_size: 61, hidden_size: 32, intermediate_size: 48, num_hidden_layers: 2 },
  ...{ num_attention_heads: 4, num_key_value_heads: 2, initializer_range: 0.2 },
}

const folder = process.argv[2]
if (!folder) throw new Error('FOLDER must be given')
const ids = Uint32Array.from({ length: 24 }, (_, at) => (7 * at + 3) % SHAPE.vocab_size)
const batch = { ids, offsets: Uint32Array.of(0, ids.length), mask: new Uint8Array(ids.length).fill(1, 1) }

for (const model_type of FAMILIES) {
  for (const dtype of ['f32', 'bf16']) {
    const shape = { model_type, ...SHAPE, tie_word_embeddings: dtype === 'f32' }
    const decoder = Decoder.fromSeed(shape, { seed: 1, dtype })
    await save(`${model_type}-${dtype}`, decoder, { logProbs: (await decoder.score(batch)).logProb })
  }
}
const policy = Decoder.fromSeed({ model_type: 'llama', ...SHAPE }, { seed: 2 })
const reward = await policy.withScalarHead('score', { seed: 3 })
const last = { ...batch, mask: new Uint8Array(ids.length).fill(1, ids.length - 1) }
await save('llama-score', reward, { value: (await reward.values(last)).subarray(-1) })

await policy.addLora({ r: 4, lora_alpha: 8, target_modules: ['q_proj', 'down_proj'] }, { seed: 4 })
await policy.forward(batch)
await policy.backward(new Float32Array(ids.length).fill(-1))
const optimizer = new AdamW(policy, { learningRate: 0.01 })
await optimizer.step()
const adapted = { logProbs: (await policy.score(batch)).logProb }
await save('llama-adapter', policy, adapted)
const bare = Decoder.fromSeed({ model_type: 'llama', ...SHAPE }, { seed: 2 })
await save('llama-peft', bare, adapted)
await policy.saveAdapter(join(folder, 'llama-peft', 'adapter'))

// What was loaded from a folder is in the one that it is saved to: a tokenizer, a template, how it generates.
const source = join(folder, '.source')
const golden = new URL('../tests/golden/tokenizer/qwen2/', import.meta.url)
const tokenizer = await HfTokenizer.fromFolder(fileURLToPath(golden))
const served = {
  ...SHAPE,
  vocab_size: tokenizer.vocabSize,
  model_type: 'qwen2',
  eos_token_id: 5,
  bos_token_id: 3,
}
await Decoder.fromSeed(served, { seed: 5 }).saveFolder(source)
for (const name of ['tokenizer.json', 'tokenizer_config.json'])
  await copyFile(new URL(name, golden), join(source, name))
await writeFile(
  join(source, 'chat_template.jinja'),
  '{% for m in messages %}[{{ m.role }}] {{ m.content }}\n{% endfor %}',
)
const again = await Decoder.fromFolder(source)
await save('qwen2-served', again, { logProbs: (await again.score(batch)).logProb })
const text = '[user] Tea at five?\n'
await writeFile(
  join(folder, 'qwen2-served', 'text.json'),
  JSON.stringify({ text, ids: [...tokenizer.encode(text).ids] }),
)

async function save(name, decoder, said) {
  await decoder.saveFolder(join(folder, name))
  const expected = Object.fromEntries(Object.entries(said).map(([key, values]) => [key, [...values]]))
  await writeFile(join(folder, name, 'expected.json'), JSON.stringify({ ids: [...ids], ...expected }))
}
