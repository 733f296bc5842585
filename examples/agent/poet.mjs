/** An agent of its own: it uses the package `openai` and variables of the environment, and nothing of Fulmar. */

import { writeFile } from 'node:fs/promises'
import OpenAI from 'openai'

const { FULMAR_SAMPLE = '{"colour":"red"}', FULMAR_FOLDER = '.' } = process.env
const { colour } = JSON.parse(FULMAR_SAMPLE)
const client = new OpenAI() // reads OPENAI_BASE_URL and OPENAI_API_KEY
const messages = [{ role: 'user', content: `A poem on ${colour}.` }]

async function ask() {
  const { choices } = await client.chat.completions.create({ model: 'fulmar', messages })
  messages.push(choices[0].message)
  return choices[0].message.content
}

const draft = await ask()
messages.push({ role: 'user', content: `${draft.length} letters. Better!` })
await writeFile(`${FULMAR_FOLDER}/poem.txt`, await ask())
