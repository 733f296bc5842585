/**
 * `npm run api [-- --check]`: writes the public declarations of each entry to `api/`, so that a change of what users see is seen in a
 * review. With `--check` a difference fails instead.
 */

import { mkdir, readdir, readFile, rm, writeFile } from 'node:fs/promises'
import { basename, join } from 'node:path'
import ts from 'typescript'
import { asProgram, Refusal, root } from './steps.mjs'

const FOLDER = join(root, 'api')

asProgram(async () => {
  const check = process.argv.includes('--check')
  const reports = reportsOf(await entries())
  if (check) return await differences(reports)
  await rm(FOLDER, { recursive: true, force: true })
  await mkdir(FOLDER)
  for (const [name, text] of reports) await writeFile(join(FOLDER, name), text)
  return 0
})

/** The name of each entry and its declarations; the main entry, which repeats names of the others, is the last. */
async function entries() {
  const { exports } = JSON.parse(await readFile(join(root, 'package.json'), 'utf8'))
  const found = Object.entries(exports).filter(([, entry]) => entry.types)
  return found.reverse().map(([name, { types }]) => [`fulmar${name.slice(1)}`, join(root, types)])
}

/** The text of each file of `api/`. A name is declared where it is met first, and only listed where it is met again. */
function reportsOf(entries) {
  const options = { module: ts.ModuleKind.NodeNext, moduleResolution: ts.ModuleResolutionKind.NodeNext }
  const program = ts.createProgram(
    entries.map(([, file]) => file),
    { ...options, lib: ['lib.es2023.d.ts', 'lib.esnext.disposable.d.ts'], types: ['node'], noEmit: true },
  )
  const checker = program.getTypeChecker()
  const homes = new Map()
  return entries.map(([entry, file]) => {
    const source = program.getSourceFile(file)
    if (!source) throw new Refusal(`${file} must be there: npm run build`)
    const exported = checker.getExportsOfModule(checker.getSymbolAtLocation(source))
    const lines = exported
      .sort((a, b) => (a.name < b.name ? -1 : 1))
      .map((symbol) => {
        const home = homes.get(symbol.name)
        if (home) return `${symbol.name} of ${home}`
        homes.set(symbol.name, entry)
        const declared = symbol.flags & ts.SymbolFlags.Alias ? checker.getAliasedSymbol(symbol) : symbol
        return declarations(declared, symbol.name)
      })
    return [`${entry.replaceAll('/', '-')}.txt`, `${lines.join('\n')}\n`]
  })
}

/** The declarations of a symbol, without comments and private members. */
function declarations(symbol, name) {
  const printer = ts.createPrinter({ removeComments: true })
  const texts = (symbol.declarations ?? []).map((declaration) => {
    const node = ts.isVariableDeclaration(declaration) ? declaration.parent.parent : declaration
    const text = printer.printNode(ts.EmitHint.Unspecified, node, declaration.getSourceFile())
    const lines = text.split('\n').filter((line) => !/^\s*(?:#private|private )/.test(line))
    return lines.join('\n').replace(/^export (?:declare )?/, '')
  })
  return symbol.name === name ? texts.join('\n') : `${name} = ${symbol.name}`
}

/** Prints what differs from `api/`, and resolves with the exit status. */
async function differences(reports) {
  const there = new Set(await readdir(FOLDER).catch(() => []))
  const lines = []
  for (const [name, text] of reports) {
    const before = there.delete(name) ? await readFile(join(FOLDER, name), 'utf8') : ''
    if (before === text) continue
    const [old, now] = [new Set(before.split('\n')), new Set(text.split('\n'))]
    lines.push(`api/${name}:`)
    lines.push(...[...old].filter((line) => !now.has(line)).map((line) => `- ${line}`))
    lines.push(...[...now].filter((line) => !old.has(line)).map((line) => `+ ${line}`))
  }
  lines.push(...[...there].map((name) => `api/${basename(name)}: no entry has this name`))
  if (lines.length === 0) return 0
  process.stdout.write(`${lines.join('\n')}\nthe public names differ from api/: npm run api\n`)
  return 1
}
