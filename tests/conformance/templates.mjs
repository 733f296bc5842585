/** Rows of whole chat templates: `template_cases.json` in the same folder has their messages and tools. */

import { existsSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { Template, TemplateRegistry } from 'fulmar/chat'
import { members } from './raw-json.mjs'
import { compareRendering } from './rendering.mjs'
import { rowFile } from './row-file.mjs'

export const templates = {
  topic: 'templates',
  members: {
    input: `id template source case kwargs special_tokens now add_generation_prompt continue_final_message`,
    expected: 'expected assistant_char_spans',
    refusal: 'expected_error:expected',
  },

  matches: (row) => ['source', 'case', 'special_tokens', 'continue_final_message'].every((key) => key in row),

  prepare(folder) {
    const path = join(folder, 'template_cases.json')
    const cases = existsSync(path) ? members(readFileSync(path, 'utf8')) : undefined
    return { folder, cases, compiled: new Map() }
  },

  check(row, { folder, cases, compiled }) {
    const { value } = row
    const isRefused = (value.expected_error ?? null) !== null
    if (isRefused && (value.expected ?? value.assistant_char_spans ?? null) !== null)
      return 'a row that fails has no text'
    if (cases === undefined) return { skipped: 'template_cases.json' }
    const given = cases.get(value.case)
    if (given === undefined) return `template_cases.json must have the case ${value.case}`
    const source = sourceOf(value.source, folder)
    if (source === undefined) return { skipped: 'templates of other projects' }
    const { messages, tools } = Object.fromEntries(members(given))
    return compareRendering(value, value.assistant_char_spans, () => {
      if (!compiled.has(source)) compiled.set(source, new Template(source))
      return compiled.get(source).render({
        messages,
        ...(tools !== undefined && tools !== 'null' && { tools }),
        addGenerationPrompt: value.add_generation_prompt,
        continueFinalMessage: value.continue_final_message,
        specialTokens: row.raw('special_tokens'),
        kwargs: row.raw('kwargs'),
        ...(value.now && { now: new Date(`${value.now}Z`) }),
      })
    })
  },
}

/** TorchRL's templates are also ours, in our own words: rendering is the same. */
const OURS = /^templates\/torchrl\/(\w+)\.jinja$/

function sourceOf(name, folder) {
  const path = rowFile(folder, name)
  if (path !== undefined) return readFileSync(path, 'utf8')
  const [, ours] = OURS.exec(name) ?? []
  const { names } = TemplateRegistry.builtin
  return ours !== undefined && names.includes(ours) ? TemplateRegistry.builtin.source(ours) : undefined
}
