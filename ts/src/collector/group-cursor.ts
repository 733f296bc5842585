/** Which groups are to be run again, as a checkpoint says. */

import { ConfigReader } from '../core/index.js'
import type { GroupCursor } from '../rollout/index.js'

/** Reads what `json`, found at `place`, says. @throws {FulmarError} `MALFORMED`, `OUT_OF_RANGE` or `UNKNOWN_NAME`. */
export function readCursor(place: string, json: unknown): GroupCursor {
  const reader = new ConfigReader(place, json)
  const groupId = reader.integer('groupId', { min: 0, fallback: -1 })
  const cursor = reader.section('cursor')
  const position = cursor.integer('position', { min: 0, fallback: -1 })
  cursor.end()
  reader.end()
  return { groupId, cursor: { position } }
}
