/** Steps of conversations on their way to the core, in the form of `fulmar_chat::Conversations`. */

import { FulmarError } from '../core/index.js'
import type { RawConversations } from '../native/index.js'
import type { Sampled } from './conversation.js'

/** Room for the steps of a few answers. It grows, and is reused. */
const NUM_WORDS = 1 << 12

/** Writes steps one after another into arrays that are reused. */
export class StepWriter {
  #words = new Uint32Array(NUM_WORDS)
  #numWords = 0
  #floats = new Float32Array(NUM_WORDS)
  #numFloats = 0
  #packed = ''
  #numRecords = 0

  /** Begins a step of the conversation `key`. */
  begin(parts: number, key: number, completionIds: Uint32Array): void {
    const at = this.#grow(3 + completionIds.length)
    const words = this.#words
    words[at] = parts
    words[at + 1] = key
    words[at + 2] = completionIds.length
    words.set(completionIds, at + 3)
  }

  /** Adds what the ledger needs besides the tokens. */
  sampled({ logProbs, sampledLogProbs, policyVersion }: Sampled): void {
    const versions = policyVersion instanceof Uint32Array ? policyVersion : rangeOf(policyVersion)
    const at = this.#grow(3 + versions.length)
    this.#words[at] = logProbs.length
    this.#words[at + 1] = sampledLogProbs.length
    this.#words[at + 2] = policyVersion instanceof Uint32Array ? 1 + versions.length : 0
    this.#words.set(versions, at + 3)
    this.#append(logProbs)
    this.#append(sampledLogProbs)
  }

  /** Adds the packed messages that extend the prompt. */
  messages(packed: string, numRecords: number): void {
    this.#packed += `${packed}\0`
    this.#numRecords += numRecords + 1
  }

  /** Runs all steps and returns the answers. */
  send(native: RawConversations): { readonly words: Uint32Array; readonly text: string } {
    const floats = this.#numFloats === 0 ? undefined : this.#floats.subarray(0, this.#numFloats)
    const { words, text } = native.run(this.#words, this.#numWords, floats, this.#packed, this.#numRecords)
    // Answers without words of their own are in the place of the steps, after their number.
    return { words: words ?? this.#words.slice(1, 1 + (this.#words[0] ?? 0)), text }
  }

  /** Forgets all steps. */
  clear(): void {
    this.#numWords = 0
    this.#numFloats = 0
    this.#packed = ''
    this.#numRecords = 0
  }

  /** Makes room for `count` words and returns the index of the first. */
  #grow(count: number): number {
    const at = this.#numWords
    this.#numWords += count
    if (this.#numWords > this.#words.length) {
      const words = new Uint32Array(2 * this.#numWords)
      words.set(this.#words)
      this.#words = words
    }
    return at
  }

  #append(numbers: Float32Array): void {
    const numFloats = this.#numFloats + numbers.length
    if (numFloats > this.#floats.length) {
      const floats = new Float32Array(2 * numFloats)
      floats.set(this.#floats)
      this.#floats = floats
    }
    this.#floats.set(numbers, this.#numFloats)
    this.#numFloats = numFloats
  }
}

/** @throws {FulmarError} `MALFORMED` if a version is not an unsigned 32-bit integer. */
export function checkVersions(policyVersion: Sampled['policyVersion']): void {
  if (policyVersion instanceof Uint32Array) return
  for (const version of rangeOf(policyVersion)) {
    if (version >>> 0 === version) continue
    const message = `turn.policyVersion must be an integer from 0 to 2^32 - 1: got ${version}`
    throw new FulmarError('MALFORMED', message)
  }
}

/** Returns the oldest and the newest version. */
function rangeOf(policyVersion: Exclude<Sampled['policyVersion'], Uint32Array>): readonly [number, number] {
  if (typeof policyVersion === 'number') return [policyVersion, policyVersion]
  return [policyVersion.min, policyVersion.max]
}
