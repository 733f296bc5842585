/** `node docs/runs/smollm2-eval/serve.mjs MODEL PORT`: the endpoint of `fulmar/agent` in front of a model; prints its key. */

import { InterceptionServer } from 'fulmar/agent'
import { loadModel } from 'fulmar/train'

const [path, port] = process.argv.slice(2)
const { policy, renderer } = await loadModel(path)
const server = await InterceptionServer.listen({ port: Number(port) })
console.log(server.open({ policy, renderer }).apiKey)
