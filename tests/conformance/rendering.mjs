/** Compares what a template rendered, or how it failed, with what a row expects. */

import { FulmarError } from 'fulmar'

/** Python's exception class -> the codes that say the same. */
const CODES = {
  TemplateError: ['TEMPLATE_RAISED'],
  TemplateSyntaxError: ['MALFORMED'],
  TemplateAssertionError: ['MALFORMED', 'UNKNOWN_NAME'],
  TemplateRuntimeError: ['UNKNOWN_NAME', 'INCOMPATIBLE'],
  UndefinedError: ['UNKNOWN_NAME'],
  SecurityError: ['FORBIDDEN'],
  TypeError: ['INCOMPATIBLE'],
  AttributeError: ['INCOMPATIBLE', 'UNKNOWN_NAME'],
  KeyError: ['INCOMPATIBLE', 'UNKNOWN_NAME', 'OUT_OF_RANGE'],
  IndexError: ['INCOMPATIBLE', 'UNKNOWN_NAME', 'OUT_OF_RANGE'],
  ValueError: ['INCOMPATIBLE', 'OUT_OF_RANGE', 'MALFORMED'],
  ZeroDivisionError: ['OUT_OF_RANGE'],
  OverflowError: ['OUT_OF_RANGE', 'LIMIT_EXCEEDED'],
  RecursionError: ['LIMIT_EXCEEDED'],
}

/** The difference between what `render` gives and what the row expects; `spans` count code points. */
export function compareRendering({ expected, expected_error: failure }, spans, render) {
  let rendered
  try {
    rendered = render()
  } catch (error) {
    if (!(error instanceof FulmarError)) throw error
    return failure ? compareFailure(error, failure) : `expected text, got ${error.code}: ${error.message}`
  }
  if (failure) return `expected ${failure.kind} (${failure.message}), got ${quote(rendered.text)}`
  if (rendered.text !== expected) return textDifference(expected, rendered.text)
  const got = JSON.stringify(codePointSpans(rendered))
  return got === JSON.stringify(spans) ? undefined : `expected spans ${JSON.stringify(spans)}, got ${got}`
}

function compareFailure(error, { kind, message }) {
  const codes = CODES[kind]
  if (codes === undefined) return `expected ${kind}, which no code stands for; got ${error.code}`
  if (!codes.includes(error.code)) return `expected ${kind}, got ${error.code}: ${error.message}`
  if (kind !== 'TemplateError' || error.message === message) return undefined
  return `expected the text ${quote(message)}, got ${quote(error.message)}`
}

function codePointSpans({ text, assistantSpans }) {
  if (assistantSpans === undefined) return null
  const edges = [...assistantSpans].map((edge) => [...text.slice(0, edge)].length)
  return Array.from({ length: edges.length / 2 }, (_, index) => edges.slice(2 * index, 2 * index + 2))
}

/** Returns the first difference of two texts, with some of each. */
export function textDifference(expected, got) {
  if (typeof expected !== 'string') return `expected ${JSON.stringify(expected)}, got ${quote(got)}`
  let at = 0
  while (at < expected.length && expected[at] === got[at]) at += 1
  const start = Math.max(0, at - 20)
  return `texts part at ${at}: expected …${quote(expected.slice(start, at + 60))}, got …${quote(got.slice(start, at + 60))}`
}

const quote = (text) => JSON.stringify(text.length > 200 ? `${text.slice(0, 200)}…` : text)
