/** Texts of the tests of this room. */

import { expect } from 'vitest'
import { NonTensorStack, TensorDict } from '../../../src/tensor/index.js'

export const failing = (code: string, message = /./) =>
  expect.objectContaining({ name: 'FulmarError', code, message: expect.stringMatching(message) })
export const asked = (...queries: string[]) =>
  TensorDict.from({ query: new NonTensorStack(queries) }, { batchSize: [queries.length] })
export const user = (content: string) => ({ role: 'user', content })
export const assistant = (content: string) => ({ role: 'assistant', content })
export const template = { templateName: 'chatml_format' }
