/**
 * `node scripts/folders-for-transformers.mjs FOLDER`: saves a small decoder of every family, in both dtypes, with a head that reads one number and
 * with an adapter, each as Hugging Face lays them out, with tokens and what they score; for scripts/folders-in-transformers.py.
 */

import { mkdir, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { AdamW, Decoder } from 'fulmar'

const FAMILIES = ['llama', 'qwen2', 'qwen3']
const SHAPE = {
  ...{ vocab_size: 61, hidden_size: 32, intermediate_size: 48, num_hidden_layers: 2 },
  ...{ num_attention_heads: 4, num_key_value_heads: 2, initializer_range: 0.2 },
}

const folder = process.argv[2]
if (!folder) throw new Error('FOLDER must be given: got none')
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
await save('llama-adapter', policy, { logProbs: (await policy.score(batch)).logProb })
const adapter = join(folder, 'llama-adapter', 'adapter')
await mkdir(adapter)
await writeFile(join(adapter, 'adapter_config.json'), JSON.stringify(await policy.loraConfig()))
await writeFile(join(adapter, 'adapter_model.safetensors'), await policy.loraToSafetensors())

async function save(name, decoder, said) {
  await decoder.saveFolder(join(folder, name))
  const expected = Object.fromEntries(Object.entries(said).map(([key, values]) => [key, [...values]]))
  await writeFile(join(folder, name, 'expected.json'), JSON.stringify({ ids: [...ids], ...expected }))
}
