/**
 * `node --import ts/test/core/typescript.mjs PROGRAM.ts`: runs a program of the tests in a process of its own, where it may crash. What
 * it imports from `ts/src/` is what `dist/` holds.
 */

import { readFile } from 'node:fs/promises'
import { register } from 'node:module'
import { fileURLToPath } from 'node:url'
import { isMainThread } from 'node:worker_threads'

const TESTS = new URL('..', import.meta.url).href
const DIST = new URL('../../../dist/', import.meta.url).href
const SOURCE = new URL('../../src/', import.meta.url).href

// The thread of the hooks evaluates this file too.
if (isMainThread) register(import.meta.url)

export function resolve(specifier, context, next) {
  if (!context.parentURL?.startsWith(TESTS) || !specifier.startsWith('.')) return next(specifier, context)
  const { href } = new URL(specifier, context.parentURL)
  if (href.startsWith(SOURCE)) return next(href.replace(SOURCE, DIST), context)
  return next(href.endsWith('.js') ? href.replace(/\.js$/, '.ts') : href, context)
}

export async function load(url, context, next) {
  if (!url.endsWith('.ts')) return next(url, context)
  const { default: ts } = await import('typescript')
  const text = await readFile(fileURLToPath(url), 'utf8')
  const compilerOptions = { module: ts.ModuleKind.ESNext, target: ts.ScriptTarget.ES2022 }
  const source = ts.transpileModule(text, { compilerOptions }).outputText
  return { format: 'module', shortCircuit: true, source }
}
