/** An agent on the package `ai`: it is given an address, a key and tools, and asks until it has an answer. */

import { createOpenAICompatible } from '@ai-sdk/openai-compatible'
import { generateText, jsonSchema, stepCountIs, tool } from 'ai'

/** Answers a question. `tools` are names, descriptions, schemas, and functions that run them. */
export async function answer({ baseURL, apiKey, question, tools, signal }) {
  const provider = createOpenAICompatible({ name: 'endpoint', baseURL, apiKey })
  const given = tools.map(({ name, description, schema, run }) => [
    name,
    tool({ description, inputSchema: jsonSchema(schema), execute: run }),
  ])
  const { text, steps } = await generateText({
    ...{ model: provider('any'), prompt: question, tools: Object.fromEntries(given) },
    ...{ stopWhen: stepCountIs(8), abortSignal: signal, maxRetries: 0 },
  })
  return { text, numSteps: steps.length }
}
