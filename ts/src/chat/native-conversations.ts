/**
 * The conversations of a renderer, which the core holds. Steps that are ready at the same time run in one call, as a call costs
 * as much as the step of a short answer.
 *
 * ```text
 * soon(step): waiting += step; the first one has all of them run in a microtask
 * run:        steps as words, log-probabilities and one text -> core -> words and one text
 *             a step that failed runs again alone, from the part that failed, for its error
 * ```
 */

import { checkTypedArray, FulmarError, Handle } from '../core/index.js'
import { type RawConversations, type RawRenderer, raw } from '../native/index.js'
import type { Answered, ConversationCore, ConversationTurn, Extended, Sampled } from './conversation.js'
import { checkSampled, type Ledger, ledgerOf } from './ledger.js'
import type { Message } from './message.js'
import { type CheckMessage, pack, withMessages } from './packed-messages.js'
import { fromText } from './parsed-text.js'
import { fromWords } from './rendered-words.js'
import {
  BRIDGE_REFUSALS,
  type Bridge,
  type JsonList,
  type ParsedResponse,
  type Rendered,
  type ToolSpec,
} from './renderer.js'
import { checkVersions, StepWriter } from './step-writer.js'
import { toolsText } from './tools-text.js'

/** Parts of a step, which run in this order. */
const [RECORD, PARSE, EXTEND] = [1, 2, 4]
/** Most steps of one call of the core. */
const STEPS_MAX = 1024

/** A step of a conversation that waits for those of others. */
interface Waiting {
  readonly conversation: NativeConversation
  readonly parts: number
  readonly completionIds: Uint32Array
  readonly sampled?: Sampled
  readonly packed?: { readonly text: string; readonly numRecords: number }
  /** Takes the answer; `undefined` if the step has not run. */
  readonly take: (answer: Answer | undefined) => void
}

/** The answer of the core to one step. */
interface Answer {
  /** Parts that were done. */
  readonly done: number
  /** The parsed completion. */
  readonly text: string
  /** Place of the extension in `words`, or of the refusal. */
  readonly at: number
  readonly words: Uint32Array
}

/** The open conversations of one renderer. */
export class NativeConversations {
  readonly #native: Handle<RawConversations>
  readonly #writer = new StepWriter()
  readonly #forgotten = new FinalizationRegistry<number>((key) => this.close(key))
  readonly check: CheckMessage | undefined
  #waiting: Waiting[] = []

  /** Shares the renderer. `check` checks messages that are not plain. */
  constructor(renderer: RawRenderer, check: CheckMessage | undefined) {
    this.#native = new Handle('Conversations', () => new raw.Conversations(renderer))
    this.check = check
  }

  /** @throws {FulmarError} `MALFORMED` if `tools` is not a list of JSON. */
  open(tools: JsonList<ToolSpec>): ConversationCore {
    const key = this.#native.call((native) => native.open(toolsText(tools)))
    const conversation = new NativeConversation(this, key)
    this.#forgotten.register(conversation, key, conversation)
    return conversation
  }

  /** Frees the native memory of a conversation. */
  close(key: number, conversation?: NativeConversation): void {
    if (conversation) this.#forgotten.unregister(conversation)
    this.#native.call((native) => native.close(key))
  }

  call<T>(body: (native: RawConversations) => T): T {
    return this.#native.call(body)
  }

  /** Runs one step at once. @throws {FulmarError} The error of the part that failed. */
  run(step: Omit<Waiting, 'take'>): Answer {
    const [answer] = this.#send([step])
    if (answer === undefined) throw new FulmarError('PANIC', 'core must answer each step: it did not')
    return answer
  }

  /** Runs a step together with all others of this turn of the event loop. */
  soon(step: Waiting): void {
    this.#waiting.push(step)
    if (this.#waiting.length === 1) void Promise.resolve().then(() => this.#runWaiting())
  }

  #runWaiting(): void {
    const waiting = this.#waiting
    this.#waiting = []
    for (let first = 0; first < waiting.length; first += STEPS_MAX)
      this.#runAll(waiting.slice(first, first + STEPS_MAX))
  }

  #runAll(steps: readonly Waiting[]): void {
    const open = steps.filter(({ conversation }) => conversation.isOpen)
    let answers: readonly (Answer | undefined)[] = []
    try {
      answers = this.#send(open)
    } catch {
      // Nothing has run, as a content cannot be packed; or the only step has failed. Each runs alone, for its error.
    }
    let index = 0
    for (const step of steps) step.take(step === open[index] ? answers[index++] : undefined)
  }

  /** Runs steps in one call. @throws {FulmarError} If none has run. */
  #send(steps: readonly Omit<Waiting, 'take'>[]): Answer[] {
    const writer = this.#writer
    try {
      for (const { conversation, parts, completionIds, sampled, packed } of steps) {
        writer.begin(parts, conversation.key, completionIds)
        if (sampled) writer.sampled(sampled)
        if (packed) writer.messages(packed.text, packed.numRecords)
      }
      const { words, text } = this.#native.call((native) => writer.send(native))
      return readAnswers(words, text, steps.length)
    } finally {
      writer.clear()
    }
  }
}

/** Reads the answers to `count` steps. */
function readAnswers(words: Uint32Array, text: string, count: number): Answer[] {
  const answers: Answer[] = []
  let [word, unit] = [0, 0]
  for (let step = 0; step < count; step++) {
    const done = words[word] ?? 0
    word += 1
    let start = unit
    if (done & PARSE) {
      start = unit
      unit += words[word] ?? 0
      word += 1
    }
    answers.push({ done, text: text.slice(start, unit), at: word, words })
    if (done & EXTEND) word += 1 + (words[word] === 0 ? numWords(words, word + 1) : 0)
  }
  return answers
}

/** Words of `Extension::to_words` that begin at `at`. */
function numWords(words: Uint32Array, at: number): number {
  const numTokens = words[at] ?? 0
  return 2 + 2 * numTokens + Math.ceil((3 * numTokens) / 4)
}

/** A conversation whose tokens the core holds. */
class NativeConversation implements ConversationCore {
  readonly #all: NativeConversations
  #key: number | undefined

  constructor(all: NativeConversations, key: number) {
    this.#all = all
    this.#key = key
  }

  /** False after `free`. */
  get isOpen(): boolean {
    return this.#key !== undefined
  }

  /** @throws {FulmarError} `CLOSED` after `free`. */
  get key(): number {
    if (this.#key !== undefined) return this.#key
    throw new FulmarError('CLOSED', 'Conversation must be open: it was disposed')
  }

  start(messages: JsonList<Message>): Rendered {
    const { key } = this
    const start = (text: string, numPacked: number | undefined) =>
      this.#all.call((native) => native.start(key, text, numPacked))
    return fromWords(withMessages(messages, start, this.#all.check)).rendered
  }

  parse(completionIds: Uint32Array): ParsedResponse {
    checkTypedArray('completionIds', completionIds, Uint32Array)
    return fromText(this.#all.run({ conversation: this, parts: PARSE, completionIds }).text)
  }

  extend(completionIds: Uint32Array, messages: JsonList<Message>): Bridge {
    checkTypedArray('completionIds', completionIds, Uint32Array)
    return bridgeOf(this.#extend(completionIds, messages))
  }

  turn(completionIds: Uint32Array, messages: JsonList<Message>): ConversationTurn {
    checkTypedArray('completionIds', completionIds, Uint32Array)
    const packed = packedOf(messages, this.#all.check)
    if (packed) {
      const parts = PARSE | EXTEND
      const answer = attempt(() => this.#all.run({ conversation: this, parts, completionIds, packed }))
      if (answer?.done === parts) return { parsed: fromText(answer.text), bridge: bridgeOf(answer) }
    }
    return { parsed: this.parse(completionIds), bridge: this.extend(completionIds, messages) }
  }

  async answerSoon(sampled: Sampled): Promise<Answered> {
    const { completionIds } = sampled
    // The ledger has no turn without a token.
    if (completionIds?.length === 0) return this.#answerAlone(sampled, PARSE)
    try {
      checkSampled(sampled)
      checkVersions(sampled.policyVersion)
    } catch (error) {
      return { ok: false, part: 'record', error }
    }
    const parts = RECORD | PARSE
    return await new Promise((resolve) => {
      const take = (answer?: Answer) => {
        if (answer?.done === parts) resolve({ ok: true, parsed: fromText(answer.text) })
        else resolve(this.#answerAlone(sampled, parts & ~(answer?.done ?? 0)))
      }
      this.#all.soon({ conversation: this, parts, completionIds, sampled, take })
    })
  }

  extendSoon(completionIds: Uint32Array, messages: JsonList<Message>): Promise<Extended> {
    return new Promise((resolve, reject) => {
      const take = (answer?: Answer) => {
        try {
          resolve(extendedOf(answer?.done ? answer : this.#extend(completionIds, messages)))
        } catch (error) {
          reject(error)
        }
      }
      const packed = packedOf(messages, this.#all.check)
      if (packed) this.#all.soon({ conversation: this, parts: EXTEND, completionIds, packed, take })
      else take()
    })
  }

  takeLedger(): Ledger {
    const { key } = this
    return ledgerOf(() => this.#all.call((native) => native.takeLedger(key)))
  }

  free(): void {
    const key = this.#key
    this.#key = undefined
    if (key !== undefined) this.#all.close(key, this)
  }

  /** Runs `parts` one by one. */
  #answerAlone(sampled: Sampled, parts: number): Answered {
    const { completionIds } = sampled
    try {
      if (parts & RECORD) this.#all.run({ conversation: this, parts: RECORD, completionIds, sampled })
    } catch (error) {
      return { ok: false, part: 'record', error }
    }
    try {
      return { ok: true, parsed: this.parse(completionIds) }
    } catch (error) {
      return { ok: false, part: 'parse', error }
    }
  }

  #extend(completionIds: Uint32Array, messages: JsonList<Message>): Answer {
    const extend = (text: string, numPacked: number | undefined) => {
      const packed =
        numPacked === undefined
          ? { text: `${JSON_LETTER}${text}\0`, numRecords: 1 }
          : { text, numRecords: numPacked }
      return this.#all.run({ conversation: this, parts: EXTEND, completionIds, packed })
    }
    return withMessages(messages, extend, this.#all.check)
  }
}

/** Begins a record that is a JSON list of messages. */
const JSON_LETTER = 'j'

/** Returns `undefined` for messages that cannot be packed, whose error another form shows. */
function packedOf(messages: JsonList<Message>, check: CheckMessage | undefined): Waiting['packed'] {
  if (typeof messages === 'string') return undefined
  const text = attempt(() => pack(messages, check))
  return text === undefined ? undefined : { text, numRecords: messages.length }
}

function attempt<T>(body: () => T): T | undefined {
  try {
    return body()
  } catch {
    return undefined
  }
}

function refusalAt({ words, at }: Answer): Extract<Bridge, { ok: false }> | undefined {
  const code = words[at] ?? 0
  const reason = BRIDGE_REFUSALS[code - 1]
  return reason && { ok: false, reason }
}

function bridgeOf(answer: Answer): Bridge {
  const refusal = refusalAt(answer)
  if (refusal) return refusal
  const { numKept, rendered } = fromWords(answer.words, answer.at + 1)
  return { ok: true, numKept, rendered }
}

function extendedOf(answer: Answer): Extended {
  const refusal = refusalAt(answer)
  if (refusal) return refusal
  const { words } = answer
  const at = answer.at + 1
  const [numTokens = 0, numKept = 0] = [words[at], words[at + 1]]
  const ids = words.subarray(at + 2, at + 2 + numTokens)
  return { ok: true, numKept, ids, rendered: () => fromWords(words, at).rendered }
}
