/** Rows of snippets of Jinja: a template, its variables, and what it renders. */

import { Template } from 'fulmar/chat'
import { compareRendering } from './rendering.mjs'

export const jinja = {
  topic: 'jinja',
  members: {
    input: 'template context now',
    expected: 'expected generation_spans',
    refusal: 'expected_error:expected',
  },

  matches: (row) => typeof row.template === 'string' && 'context' in row && !('source' in row),

  prepare: () => undefined,

  check(row) {
    const { value } = row
    return compareRendering(value, value.generation_spans ?? null, () => {
      const template = new Template(value.template)
      try {
        return template.render({
          kwargs: row.raw('context'),
          ...(value.now && { now: new Date(`${value.now}Z`) }),
        })
      } finally {
        template[Symbol.dispose]()
      }
    })
  },
}
