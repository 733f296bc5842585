/** Tools that tests call. */

import type { Tool } from '../../src/tools/index.js'

export const add: Tool = {
  name: 'add',
  description: 'Adds.',
  parameters: {
    type: 'object',
    properties: { a: { type: 'number' }, b: { type: 'number' } },
    required: ['a', 'b'],
    additionalProperties: false,
  },
  run: ({ a, b }) => ({ sum: Number(a) + Number(b) }),
}
export const echo: Tool = { name: 'echo', run: (args) => args }
export const boom: Tool = {
  name: 'boom',
  run: () => {
    throw new Error('boom')
  },
}
