/** Exact decimal numbers in human notation. */

import { checkGiven } from '../core/index.js'
import { strip } from './text.js'

/**
 * Normalizes a decimal number: no sign but `-`, no redundant zeros, no thousands separators. Removes a `$`
 * before it and a `%` or a dot after it. Returns `undefined` for another text: commas must separate groups of
 * three digits, and exponents are not allowed.
 */
export function canonicalDecimal(text: string): string | undefined {
  checkGiven('text', text)
  const { sign, rest } = signOf(strip(text))
  const [whole = '', fraction = '', ...more] = rest.replace(/%$/, '').split('.')
  const digits = ungrouped(whole)
  if (more.length > 0 || digits === undefined || /[^0-9]/.test(fraction) || digits + fraction === '') {
    return undefined
  }
  const shortWhole = withoutZeros(digits, 'start') || '0'
  const shortFraction = withoutZeros(fraction, 'end')
  const number = shortFraction === '' ? shortWhole : `${shortWhole}.${shortFraction}`
  return number === '0' ? number : sign + number
}

/** Reads the sign, which may be before or after the `$`. */
function signOf(text: string): { readonly sign: '' | '-'; readonly rest: string } {
  const [, before = '', dollar = '', behind = ''] = /^([+-]?)([$]?)([+-]?)/.exec(text) ?? []
  const rest = text.slice(before.length + dollar.length + behind.length)
  // Two signs are invalid: the text below has no digits.
  if (before !== '' && behind !== '') return { sign: '', rest: 'two signs' }
  return { sign: before + behind === '-' ? '-' : '', rest }
}

/** Returns the digits without thousands separators; `undefined` for misplaced commas or other characters. */
function ungrouped(whole: string): string | undefined {
  const [first = '', ...groups] = whole.split(',')
  const areDigits = !/[^0-9]/.test(first) && groups.every((group) => /^[0-9]{3}$/.test(group))
  const isGrouped = groups.length === 0 || /^[0-9]{1,3}$/.test(first)
  return areDigits && isGrouped ? first + groups.join('') : undefined
}

function withoutZeros(digits: string, side: 'start' | 'end'): string {
  let [start, end] = [0, digits.length]
  if (side === 'start') while (start < end && digits[start] === '0') start++
  else while (end > start && digits[end - 1] === '0') end--
  return digits.slice(start, end)
}
