import { spawnSync } from 'node:child_process'
import { copyFileSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import ts from 'typescript'
import { expect, it } from 'vitest'

const loader = fileURLToPath(new URL('../../../addon/index.cjs', import.meta.url))

/** Returns what a program prints that calls `init` of `node.ts` from a folder with this package.json and the loader of the addon. */
function loadedWith(manifest: object): string {
  const folder = mkdtempSync(join(tmpdir(), 'fulmar-no-addon-'))
  try {
    for (const name of ['node', 'loading']) {
      const source = fileURLToPath(new URL(`../../src/native/${name}.ts`, import.meta.url))
      const options = { target: ts.ScriptTarget.ES2022, module: ts.ModuleKind.ESNext }
      const { outputText } = ts.transpileModule(readFileSync(source, 'utf8'), { compilerOptions: options })
      writeFileSync(join(folder, `${name}.mjs`), outputText.replace('./loading.js', './loading.mjs'))
    }
    writeFileSync(join(folder, 'package.json'), JSON.stringify(manifest))
    mkdirSync(join(folder, 'addon'))
    copyFileSync(loader, join(folder, 'addon', 'index.cjs'))
    const program = `import('./node.mjs').then(({ init }) => init()).catch(({ code, message }) => console.log(code, message))`
    return spawnSync(process.execPath, ['-e', program], { cwd: folder, encoding: 'utf8' }).stdout
  } finally {
    rmSync(folder, { recursive: true })
  }
}

const NO_ADDON =
  /^UNAVAILABLE the native addon must be there for \w+-\w+: it could not be loaded .*fulmar-wasm/
const BUNDLED = /^UNAVAILABLE fulmar must be loaded from its own package, .*external: \['fulmar'\]/

it('says what to do where the package of this platform is not installed', () => {
  expect(loadedWith({ imports: { '#addon': './addon/index.cjs' } })).toMatch(NO_ADDON)
})

it('says what to do where the addon was not built', () => {
  expect(loadedWith({ imports: { '#addon': './addon/absent.cjs' } })).toMatch(NO_ADDON)
})

it('says to a bundled program that the package must stay outside', () => {
  expect(loadedWith({ imports: {} })).toMatch(BUNDLED)
  expect(loadedWith({ type: 'module' })).toMatch(BUNDLED)
})
