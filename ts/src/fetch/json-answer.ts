/** Answers that are JSON, of bounded length. */

import { FulmarError, messageOf, parseJson } from '../core/index.js'
import { type Answer, exchange, retrying, type Transfer, unexpected } from './transfer.js'

/** A question whose answer is JSON. */
interface JsonRequest {
  readonly url: string
  readonly token?: string | undefined
  /** For messages. */
  readonly label: string
  /** Most bytes of the answer. */
  readonly bytesMax: number
  /** The error of a status of 400 to 499. @default one that names the status */
  readonly refusal?: (answer: Answer) => FulmarError
}

/** A value with its length and the headers that it came with. */
interface JsonAnswer {
  readonly value: unknown
  readonly numBytes: number
  readonly header: Answer['header']
}

/**
 * Asks for JSON.
 * @throws {FulmarError} `LIMIT_EXCEEDED` for a longer answer; `CORRUPT` for one that is not JSON; as `exchange`.
 */
export async function readJson(transfer: Transfer, request: JsonRequest): Promise<JsonAnswer> {
  const { url, token, label, bytesMax, refusal = unexpected } = request
  return await retrying(transfer, () =>
    exchange(transfer, { method: 'GET', url, token }, async (answer) => {
      if (answer.status !== 200) throw refusal(answer)
      const parts: Uint8Array[] = []
      let numBytes = 0
      for await (const bytes of answer.body) {
        numBytes += bytes.byteLength
        if (numBytes > bytesMax)
          throw new FulmarError('LIMIT_EXCEEDED', `${label} must have at most ${bytesMax} bytes: it has more`)
        parts.push(bytes)
      }
      try {
        const value = parseJson(new TextDecoder('utf-8', { fatal: true }).decode(Buffer.concat(parts)))
        return { value, numBytes, header: answer.header }
      } catch (cause) {
        throw new FulmarError('CORRUPT', `${label} must be JSON: ${messageOf(cause)}`, { cause })
      }
    }),
  )
}
