/**
 * `node scripts/mcp-servers.mjs`: gets the MCP servers from PyPI that tests of `mcpTools` call, into `target/mcp-servers`. Prints the
 * folder, or why they could not be had.
 */

import { existsSync } from 'node:fs'
import { rename, rm } from 'node:fs/promises'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { asProgram, Refusal, root, run } from './steps.mjs'

const PACKAGES = ['mcp-server-time==2026.10.19', 'mcp-server-git==2026.10.19']
const FOLDER = join(root, 'target/mcp-servers')

/** Nothing once the servers are there, else why they could not be had. */
export async function fetchMcpServers() {
  if (existsSync(FOLDER)) return undefined
  const part = `${FOLDER}.part`
  await rm(part, { recursive: true, force: true })
  const { code, output } = await run('python3', [
    '-m',
    'pip',
    'install',
    '--quiet',
    '--target',
    part,
    ...PACKAGES,
  ])
  if (code !== 0) return `pip could not install the MCP servers: ${output.trim().split('\n').at(-1)}`
  await rename(part, FOLDER)
  return undefined
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  asProgram(async () => {
    const missing = await fetchMcpServers()
    if (missing) throw new Refusal(missing)
    process.stdout.write(`${FOLDER}\n`)
    return 0
  })
}
