import { spawnSync } from 'node:child_process'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import ts from 'typescript'
import { expect, it } from 'vitest'

/** What a program says that loads `node.ts` from a folder with these `imports` in its package. */
function loadedWith(imports: object): string {
  const folder = mkdtempSync(join(tmpdir(), 'fulmar-no-addon-'))
  try {
    const source = fileURLToPath(new URL('../../src/native/node.ts', import.meta.url))
    const text = ts.sys.readFile(source) ?? ''
    const options = { target: ts.ScriptTarget.ES2022, module: ts.ModuleKind.ESNext }
    writeFileSync(join(folder, 'node.mjs'), ts.transpileModule(text, { compilerOptions: options }).outputText)
    writeFileSync(join(folder, 'package.json'), JSON.stringify({ imports }))
    const program = `import('./node.mjs').catch(({ code, message }) => console.log(code, message))`
    return spawnSync(process.execPath, ['-e', program], { cwd: folder, encoding: 'utf8' }).stdout
  } finally {
    rmSync(folder, { recursive: true })
  }
}

it('says what to do where there is no addon for this platform', () => {
  expect(loadedWith({ '#addon': './addon/index.cjs' })).toMatch(
    /^UNAVAILABLE the native addon must be there for \w+-\w+: it could not be loaded .*fulmar-wasm/,
  )
})

it('says to a bundled program that the package must stay outside', () => {
  expect(loadedWith({})).toMatch(
    /^UNAVAILABLE fulmar must be loaded from its own package, .*external: \['fulmar'\]/,
  )
})
