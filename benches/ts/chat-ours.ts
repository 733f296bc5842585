/** Fulmar's side of benches/ts/chat.ts, from JavaScript, on the backend of the process. */

import { createHash } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { HfTokenizer } from 'fulmar'
import { createRenderer, type DisposableRenderer, Template } from 'fulmar/chat'
import { History } from 'fulmar/torchrl'
import type { Conversation } from './chat-corpus.js'

/** One pass over the corpus: its time, and a digest of what came out, made on request. */
export interface OurPass {
  readonly ms: number
  readonly digest: () => string
}

/** The corpus, a tokenizer, a template and a renderer of one family, read from a folder. */
export class OursInNode {
  readonly corpus: readonly Conversation[]
  readonly tokenizer: HfTokenizer
  readonly renderer: DisposableRenderer
  readonly #template: Template

  /** Reads `corpus.json`, `tokenizer.json` and `template.jinja`. */
  constructor(folder: string) {
    const read = (name: string) => readFileSync(`${folder}/${name}`, 'utf8')
    this.corpus = JSON.parse(read('corpus.json'))
    this.tokenizer = HfTokenizer.fromJson(read('tokenizer.json'))
    this.renderer = createRenderer(this.tokenizer, { name: 'qwen3' })
    this.#template = new Template(read('template.jinja'))
  }

  /** The time of one small rendering, in milliseconds: where this is the first call, of that. */
  first(): number {
    const start = performance.now()
    this.renderer.render([{ role: 'user', content: 'Hello' }])
    return performance.now() - start
  }

  /** The ids of a text whose markers are tokens. */
  encode(text: string): Uint32Array {
    return this.tokenizer.encode(text, { addedTokens: true }).ids
  }

  /** Objects in, texts out. */
  renderTexts(): OurPass {
    return this.#texts(() => this.renderer.renderTexts(this.corpus))
  }

  /** The same through the Jinja template. */
  renderTemplate(): OurPass {
    return this.#texts(() =>
      this.corpus.map(
        ({ messages, tools }) => this.#template.render({ messages, ...(tools && { tools }) }).text,
      ),
    )
  }

  /** Objects in, ids and masks of what an assistant says out. */
  tokens(): OurPass {
    return timed(
      () =>
        this.corpus.map(({ messages, tools = [] }) => {
          const { ids, sampledMask } = this.renderer.render(messages, { tools })
          return [ids, sampledMask] as const
        }),
      tokenBytes,
    )
  }

  /** The same through the Jinja template and its spans. */
  templateTokens(): OurPass {
    const options = { tokenizer: this.tokenizer, template: this.#template, addGenerationPrompt: false }
    return timed(
      () =>
        this.corpus.map(({ messages, tools }) => {
          using history = History.fromChats(messages)
          using row = history.applyChatTemplate({
            ...options,
            ...(tools && { tools }),
            returnAssistantTokensMask: true,
          })
          using ids = row.tensor('input_ids')
          using mask = row.tensor('assistant_masks')
          return [ids.data, mask.data] as const
        }),
      tokenBytes,
    )
  }

  #texts(render: () => string[]): OurPass {
    return timed(render, (texts) => Buffer.from(texts.join('\0')))
  }
}

function timed<T>(work: () => T, bytesOf: (made: T) => Uint8Array): OurPass {
  const start = performance.now()
  const made = work()
  const ms = performance.now() - start
  return { ms, digest: () => createHash('sha256').update(bytesOf(made)).digest('hex') }
}

type Column = ArrayLike<number | bigint>

/** Each token as `2 * id + mask`, in 32 bits. */
function tokenBytes(rows: readonly (readonly [Column, Column])[]): Uint8Array {
  const numTokens = rows.reduce((sum, [ids]) => sum + ids.length, 0)
  const words = new Uint32Array(numTokens)
  let at = 0
  for (const [ids, mask] of rows) {
    for (let token = 0; token < ids.length; token++)
      words[at++] = 2 * Number(ids[token]) + Number(mask[token])
  }
  return new Uint8Array(words.buffer)
}
