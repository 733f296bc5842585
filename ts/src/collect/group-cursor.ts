/** Position of a group in a checkpoint. */

import { type Field, field } from '../core/index.js'
import type { GroupCursor } from '../rollout/index.js'

/** Reads one {@link GroupCursor}. */
export const groupCursor: Field<GroupCursor> = field.section({
  groupId: field.integer({ min: 0 }),
  cursor: field.section({ position: field.integer({ min: 0 }) }),
})
