/** Answers of the page's server. */

import { FulmarError, messageOf } from '../core/index.js'
import { RequestRefusal } from './request-guard.js'
import type { RunTail } from './run-tail.js'

/** One answer. */
export interface Answer {
  readonly status?: number
  readonly type: string
  readonly body: string | Uint8Array
  readonly headers?: Readonly<Record<string, string>>
}

/** Answers the requests of one path. */
export type Route = (runs: readonly RunTail[], url: URL) => Promise<Answer> | Answer

/** A value as JSON. */
export function json(value: unknown): Answer {
  return { type: 'application/json', body: JSON.stringify(value) }
}

/** An error as JSON with its status. */
export function failure(error: unknown): Answer {
  const { status, code } = error instanceof RequestRefusal ? error : statusOf(error)
  const body = json({ error: { code, message: messageOf(error) } })
  return { ...body, status, ...(status === 405 && { headers: { allow: 'GET' } }) }
}

/** A file that has vanished or changed is no fault of this server. */
function statusOf(error: unknown): { readonly status: number; readonly code: string } {
  return error instanceof FulmarError ? { status: 410, code: error.code } : { status: 500, code: 'internal' }
}
