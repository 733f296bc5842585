import { execFileSync, spawn } from 'node:child_process'
import { existsSync } from 'node:fs'
import { mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises'
import { createServer } from 'node:http'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { ManualClock } from '../../src/telemetry/index.js'
import type { McpProgress } from '../../src/tools/mcp-server.js'
import { type McpTools, type McpToolsOptions, mcpTools } from '../../src/tools/mcp-tools.js'
import { ToolRegistry } from '../../src/tools/tool-registry.js'
import { ToolRunner } from '../../src/tools/tool-runner.js'
import { failing } from '../torchrl/envs/chats.js'
import { worksHere } from './sandbox-here.js'

const package_ = (name: string) =>
  fileURLToPath(new URL(`../../../node_modules/@modelcontextprotocol/${name}/dist/index.js`, import.meta.url))
const node = (...args: string[]) => ({ command: process.execPath, args })
const bad = (mode = '') =>
  node(fileURLToPath(new URL('mcp-server-process.mjs', import.meta.url)), ...(mode === '' ? [] : [mode]))
const open: McpTools[] = []
const isUsable = await worksHere()

/** Servers in Python, which `node scripts/mcp-servers.mjs` gets. */
const PYTHON_SERVERS = fileURLToPath(new URL('../../../target/mcp-servers', import.meta.url))
const arePythonServersThere = existsSync(PYTHON_SERVERS)
if (!arePythonServersThere)
  process.stderr.write(
    '\nSKIPPED: the servers that `node scripts/mcp-servers.mjs` gets are not there, and a test needs them\n',
  )

/** The servers' tools, which the end of the test closes. */
async function toolsOf(servers: McpToolsOptions['servers'], options: Partial<McpToolsOptions> = {}) {
  const mcp = await mcpTools({ servers, timeoutMs: 30_000, ...options })
  open.push(mcp)
  return mcp
}

/** The answer of one call: its value, or the code and the sentence of its error. */
async function call(
  mcp: McpTools,
  tool: string,
  args: Readonly<Record<string, unknown>> = {},
  signal?: AbortSignal,
) {
  const runner = new ToolRunner({ tools: mcp.registry, timeoutMs: 60_000, maxResultChars: 1_000_000 })
  const [result] = await runner.run([{ tool, args: args as never, tag: null }], { messages: [], signal })
  if (result?.ok) return result.value
  const { code, message, cause } = result?.error ?? expect.unreachable()
  return { code, message, cause: (cause as { code?: string } | undefined)?.code }
}

afterAll(() => Promise.all(open.map((mcp) => mcp.close())))

describe('mcpTools', () => {
  it('offers the tools of several servers as `server.tool`, those that are allowed alone', async () => {
    const folder = await mkdtemp(join(tmpdir(), 'fulmar-test-'))
    await writeFile(join(folder, 'note.txt'), 'the note')
    const registry = new ToolRegistry([{ name: 'own', run: () => 1 }])
    const mcp = await toolsOf(
      {
        every: { ...node(package_('server-everything'), 'stdio'), tools: ['echo', 'get-sum'] },
        files: { ...node(package_('server-filesystem'), folder), tools: ['read_text_file'] },
        memory: {
          ...node(package_('server-memory')),
          env: { MEMORY_FILE_PATH: join(folder, 'memory.json') },
        },
      },
      { registry },
    )
    expect(registry.names.slice(0, 2)).toEqual(['own', ...registry.names.slice(1, 2)])
    expect(registry.names).toEqual(
      expect.arrayContaining([
        'own',
        'every.echo',
        'every.get-sum',
        'files.read_text_file',
        'memory.read_graph',
      ]),
    )
    expect(registry.names.filter((name) => /^(every|files)\./.test(name)).length).toBe(3)
    expect(await call(mcp, 'every.get-sum', { a: 2, b: 3 })).toBe('The sum of 2 and 3 is 5.')
    expect(await call(mcp, 'every.get-sum', { a: 2 })).toMatchObject({ code: 'MALFORMED' })
    expect(await call(mcp, 'every.get-env')).toMatchObject({ code: 'UNKNOWN_NAME' })
    expect(await call(mcp, 'files.read_text_file', { path: join(folder, 'note.txt') })).toBe('the note')
    expect(await call(mcp, 'files.read_text_file', { path: '/etc/passwd' })).toMatchObject({
      code: 'USER_CODE',
      message: expect.stringMatching(/denied/),
    })
    await call(mcp, 'memory.create_entities', {
      entities: [{ name: 'tea', entityType: 'drink', observations: ['hot'] }],
    })
    expect(await call(mcp, 'memory.read_graph')).toMatch(/"tea"/)
    expect(await readFile(join(folder, 'memory.json'), 'utf8')).toMatch(/tea/)
    await mcp.close()
    expect(await call(mcp, 'every.echo', { message: 'a' })).toMatchObject({ cause: 'CLOSED' })
    await rm(folder, { recursive: true })
  })

  it('gives images, resources, links and structures as text, or images as parts', async () => {
    const every = node(package_('server-everything'), 'stdio')
    const mcp = await toolsOf({ every })
    expect(await call(mcp, 'every.get-tiny-image')).toMatch(/\n\[image image\/png, \d+ bytes\]\n/)
    expect(await call(mcp, 'every.get-resource-reference', { resourceType: 'Text', resourceId: 1 })).toMatch(
      /\[resource demo:\/\/resource\/dynamic\/text\/1 text\/plain\]\nResource 1: /,
    )
    expect(await call(mcp, 'every.get-resource-reference', { resourceType: 'Blob', resourceId: 1 })).toMatch(
      /blob\/1 text\/plain, \d+ bytes\]/,
    )
    expect(await call(mcp, 'every.get-resource-links', { count: 1 })).toMatch(
      /\n\[resource demo:\S+ Blob Resource 1 /,
    )
    expect(await call(mcp, 'every.get-structured-content', { location: 'Chicago' })).toMatch(
      /^\{"temperature"/,
    )
    const seeing = await toolsOf({ every }, { images: 'part' })
    expect(await call(seeing, 'every.get-tiny-image')).toEqual([
      { type: 'text', text: expect.any(String) },
      { type: 'image_url', image_url: { url: expect.stringMatching(/^data:image\/png;base64,iVBOR/) } },
      { type: 'text', text: expect.any(String) },
    ])
  })

  it('passes on progress, and cancels calls', async () => {
    const seen: McpProgress[] = []
    const mcp = await toolsOf({ s: bad() }, { onProgress: (progress) => seen.push(progress) })
    expect(await call(mcp, 's.progress')).toBe('done')
    expect(seen).toEqual(
      [1, 2].map((progress) => ({
        server: 's',
        tool: 'progress',
        progress,
        total: 2,
        message: `part ${progress}`,
      })),
    )
    const stop = new AbortController()
    const waiting = call(mcp, 's.wait', {}, stop.signal)
    setTimeout(() => stop.abort(), 100)
    await expect(waiting).rejects.toThrow(failing('ABORTED'))
    expect(await call(mcp, 's.ok')).toBe('fine')
    expect(await call(mcp, 's.die')).toMatchObject({ message: expect.stringMatching(/cancelled \d/) })
  })

  it('follows the list of a server, and leaves out what cannot be a tool', async () => {
    const mcp = await toolsOf({ s: bad() })
    expect(mcp.refused.length).toBe(2)
    expect((await toolsOf({ many: bad('many') })).registry.names.length).toBe(512)
    expect(mcp.refused[0]).toMatch(/s\.bad name: .*letters/)
    expect(mcp.registry.specs[0]).toMatchObject({ function: { description: 'd'.repeat(4_096) } })
    expect(await call(mcp, 's.rename')).toBe('done')
    while (!mcp.registry.has('s.renamed')) await new Promise(setImmediate)
    expect(mcp.registry.names).toEqual(['s.renamed'])
    expect(await call(mcp, 's.ok')).toMatchObject({ code: 'UNKNOWN_NAME' })
  })

  it('reads past lines that are no messages, and answers of a wrong form with an error', async () => {
    const mcp = await toolsOf({ s: bad('noise') })
    expect(await call(mcp, 's.noise')).toBe('heard')
    expect(await call(mcp, 's.fail')).toMatchObject({ code: 'USER_CODE', message: 'it is broken' })
    expect(await call(mcp, 's.refuse')).toMatchObject({ message: expect.stringMatching(/not today/) })
    expect(await call(mcp, 's.wrong')).toMatchObject({ code: 'USER_CODE' })
  })

  it.each([
    ['die', /exit code 7/],
    ['flood', /more than 67108864 bytes without an answer/],
    ['long', /a message of more than 16777216 bytes/],
    ['garbage', /1000 lines that are no messages/],
  ])('ends a server at `%s` with the reason, and starts it again after a while', async (tool, reason) => {
    const clock = new ManualClock()
    const mcp = await toolsOf({ s: bad() }, { clock })
    expect(await call(mcp, `s.${tool}`)).toMatchObject({
      cause: 'UNAVAILABLE',
      message: expect.stringMatching(reason),
    })
    expect(await call(mcp, 's.ok')).toMatchObject({
      cause: 'UNAVAILABLE',
      message: expect.stringMatching(/again in 1000 ms/),
    })
    clock.advance(1_000)
    expect(await call(mcp, `s.${tool}`)).toMatchObject({ cause: 'UNAVAILABLE' })
    clock.advance(1_000)
    expect(await call(mcp, 's.ok')).toMatchObject({ message: expect.stringMatching(/again in 1000 ms/) })
    clock.advance(1_000)
    expect(await call(mcp, 's.ok')).toBe('fine')
    expect(await call(mcp, `s.${tool}`)).toMatchObject({ cause: 'UNAVAILABLE' })
    expect(await call(mcp, 's.ok')).toMatchObject({ message: expect.stringMatching(/again in 1000 ms/) })
  })

  it('ends a server that hangs, once it answers no ping either', async () => {
    const clock = new ManualClock()
    const mcp = await toolsOf({ s: bad() }, { clock })
    const late = call(mcp, 's.hang')
    while (clock.numTimers === 0) await new Promise(setImmediate)
    clock.advance(30_000)
    expect(await late).toMatchObject({ cause: 'TIMEOUT', message: expect.stringMatching(/within 30000 ms/) })
    clock.advance(2_000)
    for (let tries = 0; tries < 100; tries++) await new Promise(setImmediate)
    expect(await call(mcp, 's.ok')).toMatchObject({
      message: expect.stringMatching(/neither a call nor a ping/),
    })
    clock.advance(1_000)
    expect(await call(mcp, 's.ok')).toBe('fine')
  })

  it('refuses servers that do not start, with what they wrote, and leaves no other running', async () => {
    const servers = { good: bad(), dead: bad('die') }
    await expect(mcpTools({ servers })).rejects.toThrow(
      failing('UNAVAILABLE', /server dead must start: .*no license/),
    )
    await expect(mcpTools({ servers: { s: { command: '/no/such/program' } } })).rejects.toThrow(
      failing('UNAVAILABLE', /ENOENT/),
    )
    const clock = new ManualClock()
    const hanging = mcpTools({ servers: { s: bad('hang') }, clock })
    while (clock.numTimers === 0) await new Promise(setImmediate)
    clock.advance(20_000)
    await expect(hanging).rejects.toThrow(failing('UNAVAILABLE', /no answer within 20000 ms/))
    await expect(mcpTools({ servers: { s: { ...bad(), tools: ['okk'] } } })).rejects.toThrow(
      failing('UNKNOWN_NAME', /servers\.s\.tools.*okk/),
    )
  })

  it.runIf(process.platform === 'linux')('leaves no process of a server, nor what it started', async () => {
    const mark = `fulmar-mcp-${process.pid}`
    const mcp = await toolsOf({ s: bad(), other: bad() })
    for (const name of ['s', 'other']) expect(await call(mcp, `${name}.spawn`, { mark })).toBe('running')
    while ((await running(mark)) < 2) await new Promise(setImmediate)
    await call(mcp, 's.die')
    await mcp.close()
    for (let tries = 0; (await running(mark)) > 0 && tries < 1_000; tries++) await new Promise(setImmediate)
    expect(await running(mark)).toBe(0)
  })

  it('refuses wrong options', async () => {
    const s = bad()
    for (const [options, error] of [
      [{}, failing('MALFORMED', /servers/)],
      [{ servers: { s }, timeout: 1 }, failing('UNKNOWN_NAME', /timeoutMs/)],
      [{ servers: { s }, timeoutMs: 0 }, failing('OUT_OF_RANGE', /timeoutMs/)],
      [{ servers: { s }, images: 'parts' }, failing('UNKNOWN_NAME', /images/)],
      [{ servers: { s }, registry: [] }, failing('MALFORMED', /registry/)],
      [{ servers: { 'a.b': s } }, failing('MALFORMED', /names/)],
      [{ servers: { s: { ...s, arg: [] } } }, failing('UNKNOWN_NAME', /args/)],
      [{ servers: { s: { command: '' } } }, failing('MALFORMED', /command/)],
      [{ servers: { s: { command: 'a\0' } } }, failing('MALFORMED', /command/)],
      [{ servers: { s: { url: 'file:///etc/passwd' } } }, failing('MALFORMED', /url/)],
      [{ servers: { s: { ...s, tools: 'ok' } } }, failing('MALFORMED', /tools/)],
      [{ servers: { s: { ...s, sandbox: { readOnly: ['a'] } } } }, failing('MALFORMED', /readOnly/)],
    ] as const)
      await expect(mcpTools(options as never)).rejects.toThrow(error)
  })
})

describe.runIf(arePythonServersThere)('mcpTools with servers in Python', () => {
  const python = (module: string, ...args: string[]) => ({
    command: 'python3',
    args: ['-m', module, ...args],
    env: { PYTHONPATH: PYTHON_SERVERS },
  })

  it('calls servers of the official SDK for Python, and passes on their refusals', async () => {
    const folder = await mkdtemp(join(tmpdir(), 'fulmar-test-'))
    execFileSync('git', ['init', '--quiet', folder])
    await writeFile(join(folder, 'note.txt'), 'the note')
    const mcp = await toolsOf({
      time: python('mcp_server_time', '--local-timezone', 'UTC'),
      git: { ...python('mcp_server_git', '--repository', folder), tools: ['git_status'] },
    })
    expect(
      await call(mcp, 'time.convert_time', {
        source_timezone: 'Europe/Paris',
        target_timezone: 'Asia/Tokyo',
        time: '12:00',
      }),
    ).toMatch(/"time_difference": "\+[78]\.0h"/)
    expect(await call(mcp, 'time.get_current_time', { timezone: 'Nowhere' })).toMatchObject({
      code: 'USER_CODE',
      message: expect.stringMatching(/timezone/i),
    })
    expect(await call(mcp, 'git.git_status', { repo_path: folder })).toMatch(/note\.txt/)
    expect(await call(mcp, 'git.git_status', { repo_path: '/' })).toMatchObject({ code: 'USER_CODE' })
    expect(await call(mcp, 'git.git_log', { repo_path: folder })).toMatchObject({ code: 'UNKNOWN_NAME' })
    await mcp.close()
    await rm(folder, { recursive: true })
  })
})

describe('mcpTools over HTTP', () => {
  let [port, headers]: [number, (string | undefined)[]] = [0, []]
  let server: ReturnType<typeof spawn>

  beforeAll(async () => {
    port = await freePort()
    server = spawn(process.execPath, [package_('server-everything'), 'streamableHttp'], {
      env: { ...process.env, PORT: String(port) },
      stdio: ['ignore', 'ignore', 'pipe'],
    })
    await new Promise<void>((resolve) =>
      server.stderr?.on('data', (bytes) => String(bytes).includes('listening') && resolve()),
    )
  })

  afterAll(() => void server.kill('SIGKILL'))

  it('calls tools with the headers, and answers when the server is gone', async () => {
    const fetch: typeof globalThis.fetch = (input, init) => {
      headers = [...headers, new Headers(init?.headers).get('x-key') ?? undefined]
      return globalThis.fetch(input, init)
    }
    const clock = new ManualClock()
    const mcp = await toolsOf(
      { every: { url: `http://127.0.0.1:${port}/mcp`, headers: { 'x-key': 'k' }, tools: ['echo'] } },
      { fetch, clock },
    )
    expect(await call(mcp, 'every.echo', { message: 'over HTTP' })).toBe('Echo: over HTTP')
    expect(new Set(headers)).toEqual(new Set(['k']))
    const gone = new Promise((resolve) => server.on('close', resolve))
    server.kill('SIGKILL')
    await gone
    expect(await call(mcp, 'every.echo', { message: 'a' })).toMatchObject({ cause: 'UNAVAILABLE' })
    expect(await call(mcp, 'every.echo', { message: 'a' })).toMatchObject({
      message: expect.stringMatching(/again in 1000 ms/),
    })
  })
})

describe('mcpTools of a server without end', () => {
  it('ends an answer without end', async () => {
    const body = () =>
      new ReadableStream<Uint8Array>({
        pull: (controller) => controller.enqueue(new Uint8Array(4_000_000).fill(32)),
      })
    const fetch = async () => new Response(body(), { headers: { 'content-type': 'application/json' } })
    await expect(mcpTools({ servers: { s: { url: 'http://localhost/mcp' } }, fetch })).rejects.toThrow(
      failing('UNAVAILABLE', /67108864 bytes at most/),
    )
  })
})

/** Number of processes of the host whose command line has the text. */
async function running(mark: string): Promise<number> {
  const ids = (await readdir('/proc')).filter((name) => /^\d+$/.test(name))
  const lines = await Promise.all(ids.map((id) => readFile(`/proc/${id}/cmdline`, 'utf8').catch(() => '')))
  return lines.filter((line) => line.includes(mark)).length
}

/** A port of the loopback address that nothing listens on. */
async function freePort(): Promise<number> {
  const probe = createServer()
  await new Promise<void>((resolve) => probe.listen(0, '127.0.0.1', resolve))
  const address = probe.address()
  await new Promise((resolve) => probe.close(resolve))
  return typeof address === 'object' && address !== null ? address.port : 0
}

describe.runIf(isUsable)('mcpTools in a sandbox', () => {
  it('runs a server that sees its own files, and neither the host nor the network', async () => {
    const modules = fileURLToPath(new URL('../../../node_modules', import.meta.url))
    const sandbox = { readOnly: [modules] }
    const mcp = await toolsOf({
      files: { ...node(package_('server-filesystem'), '/'), sandbox },
      every: { ...node(package_('server-everything'), 'stdio'), sandbox, env: { MARK: 'set' } },
    })
    expect(await call(mcp, 'every.get-env')).toMatch(/"MARK": "set"/)
    expect(await call(mcp, 'every.get-env')).not.toMatch(/"USER"|FULMAR_TEST/)
    expect(await call(mcp, 'files.read_text_file', { path: '/etc/passwd' })).toMatchObject({
      code: 'USER_CODE',
    })
    expect(await call(mcp, 'files.write_file', { path: `${modules}/evil`, content: 'x' })).toMatchObject({
      code: 'USER_CODE',
    })
    expect(await call(mcp, 'files.write_file', { path: '/sandbox/a', content: 'x' })).toMatch(/Success/)
    expect(await call(mcp, 'files.list_directory', { path: '/sandbox' })).toMatch(/\[FILE\] a/)
  })
})
