import { spawnSync } from 'node:child_process'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import ts from 'typescript'
import { expect, it } from 'vitest'

it('says what to do where there is no addon for this platform', () => {
  const folder = mkdtempSync(join(tmpdir(), 'fulmar-no-addon-'))
  try {
    const source = fileURLToPath(new URL('../../src/native/node.ts', import.meta.url))
    const text = ts.sys.readFile(source) ?? ''
    const options = { target: ts.ScriptTarget.ES2022, module: ts.ModuleKind.ESNext }
    writeFileSync(join(folder, 'node.mjs'), ts.transpileModule(text, { compilerOptions: options }).outputText)
    writeFileSync(join(folder, 'package.json'), '{ "imports": { "#addon": "./addon/index.cjs" } }')
    const program = `import('./node.mjs').catch(({ code, message }) => console.log(code, message))`
    const { stdout } = spawnSync(process.execPath, ['-e', program], { cwd: folder, encoding: 'utf8' })
    expect(stdout).toMatch(/^UNAVAILABLE the native addon must be there for \w+-\w+: got none .*fulmar-wasm/)
  } finally {
    rmSync(folder, { recursive: true })
  }
})
