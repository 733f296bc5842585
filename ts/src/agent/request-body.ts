/** Bodies of HTTP requests, up to a limit. */

import type { IncomingMessage } from 'node:http'
import { type Json, objectOf } from './body-field.js'
import { ProviderError } from './provider-error.js'

const UTF8 = new TextDecoder('utf-8', { fatal: true })

/**
 * Reads a whole body.
 * @throws {ProviderError} 413 for more than `maxBytes`, 415 for a compressed one, 400 for one that is cut off.
 */
export function readBody(request: IncomingMessage, maxBytes: number): Promise<Buffer> {
  const { 'content-encoding': encoding = 'identity', 'content-length': length = '0' } = request.headers
  if (encoding !== 'identity')
    throw bad(415, 'unsupported_encoding', `the body must not be compressed: got ${encoding.slice(0, 32)}`)
  const tooLarge = () =>
    bad(413, 'body_too_large', `the body must have at most ${maxBytes} bytes: it has more`)
  if (Number(length) > maxBytes) throw tooLarge()
  return new Promise((resolve, reject) => {
    const parts: Buffer[] = []
    let [numBytes, isWhole] = [0, false]
    request.on('data', (part: Buffer) => {
      numBytes += part.length
      if (numBytes <= maxBytes) parts.push(part)
      else reject(tooLarge())
    })
    request.on('end', () => {
      isWhole = true
      resolve(Buffer.concat(parts))
    })
    request.on('close', () => {
      // Every request is closed at last, and an unused error costs more than the rest of this function.
      if (!isWhole) reject(bad(400, 'body_cut_off', 'the body must be whole: it was cut off'))
    })
  })
}

/** Returns the JSON object of a body. @throws {ProviderError} 400 for another body. */
export function jsonOf(bytes: Buffer): Json {
  let value: unknown
  try {
    value = JSON.parse(UTF8.decode(bytes))
  } catch (cause) {
    throw new ProviderError(400, 'invalid_request_error', 'invalid_json', 'the body must be JSON in UTF-8', {
      cause,
    })
  }
  return objectOf('body', value)
}

function bad(status: number, code: string, message: string): ProviderError {
  return new ProviderError(status, 'invalid_request_error', code, message)
}
