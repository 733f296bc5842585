/**
 * An edge worker. `POST /score` takes a {@link ScoreRequest}, `POST /encode` an {@link EncodeRequest}, `POST /untrusted`
 * an untrusted template with its messages.
 */

import { describeBuild, FulmarError, init } from 'fulmar'
import { type Message, renderUntrusted } from 'fulmar/chat'
import { type EncodeRequest, encodeChat } from './encode.js'
import { type ScoreRequest, scoreRollouts } from './score.js'

interface UntrustedRequest {
  readonly template: string
  readonly messages: readonly Message[]
  readonly steps?: number
}

/** Answers of each path. The body comes from the client: it is checked where it is used. */
const ROUTES: Readonly<Record<string, (body: unknown) => unknown>> = {
  '/score': (body) => scoreRollouts(body as ScoreRequest),
  '/encode': (body) => encodeChat(body as EncodeRequest),
  '/untrusted': async (body) => {
    const { template, messages, steps = 1_000_000 } = body as UntrustedRequest
    return renderUntrusted(template, { messages }, { steps })
  },
}

async function answer(request: Request): Promise<Response> {
  const route = ROUTES[new URL(request.url).pathname]
  if (route === undefined) return Response.json({ error: 'path must be known' }, { status: 404 })
  if (request.method !== 'POST') return Response.json({ error: 'method must be POST' }, { status: 405 })
  try {
    // A browser fetches the module here, once; in workerd it is there.
    await init()
    return Response.json({ backend: describeBuild().backend, answer: await route(await request.json()) })
  } catch (error) {
    if (!(error instanceof FulmarError)) throw error
    return Response.json({ code: error.code, error: error.message }, { status: 400 })
  }
}

// biome-ignore lint/style/noDefaultExport: a worker is the default export of its module.
export default { fetch: answer }
