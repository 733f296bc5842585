/** A client of the endpoint for tests: one request after another, by `fetch`. */

import type { AgentRollout } from '../../src/agent/index.js'

export interface Reply {
  readonly status: number
  readonly headers: Headers
  // biome-ignore lint/suspicious/noExplicitAny: bodies are compared with what a test expects
  readonly body: any
}

type Address = Pick<AgentRollout, 'baseURL' | 'apiKey'>

/** Posts a body, as JSON if it is not a text. */
export async function post(
  { baseURL, apiKey }: Address,
  path: string,
  body: unknown,
  headers: Readonly<Record<string, string>> = {},
): Promise<Reply> {
  const answer = await fetch(`${baseURL}${path}`, {
    method: 'POST',
    headers: { authorization: `Bearer ${apiKey}`, 'content-type': 'application/json', ...headers },
    body: typeof body === 'string' ? body : JSON.stringify(body),
  })
  return { status: answer.status, headers: answer.headers, body: await answer.json() }
}

/** Posts a chat. */
export function chat(
  rollout: Address,
  body: object,
  headers?: Readonly<Record<string, string>>,
): Promise<Reply> {
  return post(rollout, '/chat/completions', { model: 'test', ...body }, headers)
}

/** Posts a chat that streams, and returns the data of its events. */
// biome-ignore lint/suspicious/noExplicitAny: as above
export async function events(rollout: Address, path: string, body: object): Promise<any[]> {
  const answer = await fetch(`${rollout.baseURL}${path}`, {
    method: 'POST',
    headers: { authorization: `Bearer ${rollout.apiKey}` },
    body: JSON.stringify({ model: 'test', stream: true, ...body }),
  })
  const text = await answer.text()
  return text
    .split('\n')
    .filter((line) => line.startsWith('data: '))
    .map((line) => (line === 'data: [DONE]' ? line : JSON.parse(line.slice(6))))
}
