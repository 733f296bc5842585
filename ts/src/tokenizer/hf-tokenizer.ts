/** Any `tokenizer.json` of Hugging Face. */

import { call, checkTypedArray, FulmarError, readRegular } from '../core/index.js'
import { raw } from '../native/index.js'
import { NativeTokenizer } from './native-tokenizer.js'

/**
 * A tokenizer read from the files of Hugging Face, of any family: BPE, WordPiece, Unigram, word level. With
 * `addedTokens`, ids and offsets are those of the `tokenizers` package without special tokens being added; without it,
 * no text becomes an added token. Bytes or words that have no token disappear or become the unknown token, as the file
 * configures. Padding and truncation of the file are ignored. Holds native memory: dispose it, or declare it with
 * `using`.
 *
 * @example
 * ```ts
 * import { HfTokenizer } from 'fulmar'
 * import assert from 'node:assert/strict'
 *
 * const file = {
 *   added_tokens: [{ id: 3, content: '<end>', special: true }],
 *   pre_tokenizer: { type: 'WhitespaceSplit' },
 *   model: { type: 'WordLevel', vocab: { '<unk>': 0, two: 1, words: 2 }, unk_token: '<unk>' },
 * }
 * using tokenizer = HfTokenizer.fromJson(file, { eos_token: '<end>' }, '{{ messages[0].content + eos_token }}')
 * const { ids, offsets } = tokenizer.encode('two words<end>', { addedTokens: true })
 * assert.deepEqual([...ids], [1, 2, 3])
 * assert.deepEqual([...offsets], [0, 3, 4, 9, 9, 14])
 * assert.equal(tokenizer.decode(ids, { skipSpecial: true }), 'two words')
 * assert.deepEqual(tokenizer.specialTokens, { eos_token: '<end>' })
 * assert.equal(tokenizer.chatTemplate, '{{ messages[0].content + eos_token }}')
 * ```
 */
export class HfTokenizer extends NativeTokenizer {
  private constructor(tokenizerJson: unknown, files: TokenizerFiles) {
    super('HfTokenizer', () => raw.Tokenizer.huggingFace(textOf(tokenizerJson), JSON.stringify(files)))
  }

  /**
   * The tokenizer of a `tokenizer.json`, and of a `tokenizer_config.json` and a `chat_template.jinja` where they are
   * given: for programs without a file system. The first two as text or as parsed JSON.
   * @throws {FulmarError} `MALFORMED` if one is not of the form; `CORRUPT` if it contradicts itself; `LIMIT_EXCEEDED`
   * past 128 MiB or 2^22 ids, or if the file could make text endlessly long.
   */
  static fromJson(tokenizerJson: unknown, tokenizerConfig?: unknown, chatTemplate?: string): HfTokenizer {
    return call(() => {
      const templates: [string, string][] = chatTemplate === undefined ? [] : [['default', chatTemplate]]
      const config = tokenizerConfig === undefined ? undefined : textOf(tokenizerConfig)
      return new HfTokenizer(tokenizerJson, { config, templates })
    })
  }

  /**
   * The tokenizer of a model's folder: its `tokenizer.json` and, where they are there, `tokenizer_config.json`,
   * `special_tokens_map.json`, `chat_template.jinja` and `additional_chat_templates/*.jinja`. Needs Node's file system.
   * @throws {FulmarError} `IO` if `tokenizer.json` is not there or a file cannot be read; `CORRUPT` for a pipe or a device; else as
   * {@link HfTokenizer.fromJson}.
   */
  static async fromFolder(folder: string): Promise<HfTokenizer> {
    const { readdir } = await import('node:fs/promises')
    const read = async (name: string) => {
      const bytes = await readRegular(`${folder}/${name}`, TOKENIZER_FILE_BYTES_MAX)
      return bytes && new TextDecoder().decode(bytes)
    }
    const tokenizer = await read('tokenizer.json')
    if (tokenizer === undefined)
      throw new FulmarError('IO', `${folder}/tokenizer.json must be there: got no such file`)
    const names = await readdir(`${folder}/${ADDITIONAL}`).catch(() => [])
    const templates: [string, string][] = []
    for (const name of names.filter((file) => file.endsWith('.jinja')).sort()) {
      templates.push([name.slice(0, -'.jinja'.length), (await read(`${ADDITIONAL}/${name}`)) ?? ''])
    }
    const template = await read('chat_template.jinja')
    if (template !== undefined) templates.push(['default', template])
    const [config, specialTokensMap] = [
      await read('tokenizer_config.json'),
      await read('special_tokens_map.json'),
    ]
    return new HfTokenizer(tokenizer, { config, specialTokensMap, templates })
  }

  /**
   * The tokenizer that a GGUF file carries, with its chat template, if it is a byte-level BPE; `bytes` are the file.
   * @throws {FulmarError} `CORRUPT` for a damaged file; `INCOMPATIBLE` for another kind of tokenizer, or cuts that are not built.
   *
   * @example
   * ```ts no-run
   * import { HfTokenizer } from 'fulmar'
   * import assert from 'node:assert/strict'
   * import { readFile } from 'node:fs/promises'
   *
   * using tokenizer = HfTokenizer.fromGguf(await readFile('SmolLM2-135M-Instruct.Q4_1.gguf'))
   * assert.equal(tokenizer.specialTokens.eos_token, '<|im_end|>')
   * ```
   */
  static fromGguf(bytes: Uint8Array): HfTokenizer {
    checkTypedArray('bytes', bytes, Uint8Array)
    const [tokenizer, config, template] = call(() => raw.ggufTokenizer(bytes))
    return HfTokenizer.fromJson(tokenizer, config, template)
  }

  /** The `tokenizer.json`, ready for JSON. Names of special tokens and chat templates are not in it. */
  toJSON(): unknown {
    return JSON.parse(this.withNative((native) => native.toJson()))
  }
}

const ADDITIONAL = 'additional_chat_templates'

/** The largest file of a tokenizer, as the core has it. */
const TOKENIZER_FILE_BYTES_MAX = 134_217_728

interface TokenizerFiles {
  readonly config?: string | undefined
  readonly specialTokensMap?: string | undefined
  readonly templates: readonly (readonly [string, string])[]
}

function textOf(json: unknown): string {
  return typeof json === 'string' ? json : String(JSON.stringify(json))
}
