/** A model's folder with the smallest tokenizer that has markers, and a chat template of its own. */

import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { temporaryFolder } from '../telemetry/folder.js'

/** One token a byte; `<|im_start|>` is 256 and `<|im_end|>` is 257. */
const TOKENIZER = {
  added_tokens: ['<|im_start|>', '<|im_end|>'].map((content, index) => ({
    id: 256 + index,
    content,
    special: true,
  })),
  pre_tokenizer: { type: 'ByteLevel', add_prefix_space: false, use_regex: false },
  decoder: { type: 'ByteLevel' },
  model: { type: 'BPE', vocab: byteVocabulary(), merges: [] },
}

/** Its last word is a special token, so that a test sees that those are variables. */
const TEMPLATE =
  '{% for m in messages %}{{ m.role }}: {% generation %}{{ m.content }}{% endgeneration %};{% endfor %}{{ eos_token }}'

/** Writes the folder; `template` replaces the chat template, `null` leaves it out. */
export async function modelFolder(template: string | null = TEMPLATE): Promise<string> {
  const folder = await temporaryFolder()
  const config = { eos_token: '<|im_end|>', ...(template === null ? {} : { chat_template: template }) }
  await writeFile(join(folder, 'tokenizer.json'), JSON.stringify(TOKENIZER))
  await writeFile(join(folder, 'tokenizer_config.json'), JSON.stringify(config))
  return folder
}

/** The names that byte-level vocabularies give to bytes: printable Latin-1 as it is, the others from U+0100 on. */
function byteVocabulary(): Record<string, number> {
  let next = 0x100
  const nameOf = (byte: number) => {
    const isPrintable = (byte > 32 && byte < 127) || (byte > 160 && byte !== 173)
    return String.fromCodePoint(isPrintable ? byte : next++)
  }
  return Object.fromEntries(Array.from({ length: 256 }, (_, byte) => [nameOf(byte), byte]))
}
