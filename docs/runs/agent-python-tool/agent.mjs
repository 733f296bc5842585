/** An agent of its own: it asks a model by the package `openai`, runs the Python that the model writes in a sandbox, and imports nothing of Fulmar. */

import { spawnSync } from 'node:child_process'
import { pathToFileURL } from 'node:url'
import OpenAI from 'openai'

const parameters = { type: 'object', properties: { code: { type: 'string' } } }
const tools = [{ type: 'function', function: { name: 'python', parameters } }]
const BWRAP =
  '--unshare-all --die-with-parent --ro-bind /usr /usr --symlink usr/lib /lib --symlink usr/lib64 /lib64 --proc /proc --dev /dev'

/** Runs Python without a network or files of this machine; the numbers are its standard input. */
function python(code, numbers) {
  const args = [...BWRAP.split(' '), '/usr/bin/python3', '-I', '-c', code]
  const options = { input: numbers.join(' '), encoding: 'utf8', timeout: 10_000, maxBuffer: 10_000 }
  const { status, stdout } = spawnSync('bwrap', args, options)
  return status === 0 ? stdout.trim() : 'error'
}

/** Asks for the sum of numbers that only the program sees, and posts whether it is right. What a program prints is the answer. */
export async function agent(client, { numbers }) {
  const messages = [{ role: 'user', content: 'Sum?' }]
  const { choices } = await client.chat.completions.create({ model: 'fulmar', messages, tools })
  const { content, tool_calls: calls = [] } = choices[0].message
  let answer = content
  if (calls.length > 0) answer = python(codeOf(calls[0]), numbers)
  const right = String(numbers.reduce((sum, number) => sum + number, 0))
  await client.post('/fulmar/reward', { body: { reward: Number(answer === right) } })
}

function codeOf(call) {
  return String(JSON.parse(call.function.arguments).code)
}

if (import.meta.url === pathToFileURL(process.argv[1] ?? '').href)
  await agent(new OpenAI(), JSON.parse(process.env.FULMAR_SAMPLE))
