/** An edge worker that scores rollouts: `POST` a {@link ScoreRequest}, get a {@link ScoreResponse}. */

import { describeBuild, FulmarError } from 'fulmar'
import { type ScoreRequest, scoreRollouts } from './score.js'

async function answer(request: Request): Promise<Response> {
  if (request.method !== 'POST') return Response.json({ error: 'method must be POST' }, { status: 405 })
  try {
    const scores = scoreRollouts((await request.json()) as ScoreRequest)
    return Response.json({ backend: describeBuild().backend, scores })
  } catch (error) {
    if (!(error instanceof FulmarError)) throw error
    return Response.json({ code: error.code, error: error.message }, { status: 400 })
  }
}

// biome-ignore lint/style/noDefaultExport: a worker is the default export of its module.
export default { fetch: answer }
