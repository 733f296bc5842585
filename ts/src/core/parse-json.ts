/** Parses JSON without loss of digits of large integers. */

/** Fewest digits of an integer that a number may not represent. */
const LARGE_INTEGER = /\d{16}/

/**
 * @internal Returns the value of JSON text. A number of JavaScript has 53 bits: an integer that would change
 * becomes a text of its digits.
 * @throws {SyntaxError} As `JSON.parse`.
 */
export function parseJson(text: string): unknown {
  const value: unknown = JSON.parse(text)
  return LARGE_INTEGER.test(text) ? JSON.parse(withLargeIntegersQuoted(text)) : value
}

function withLargeIntegersQuoted(json: string): string {
  const parts: string[] = []
  let copied = 0
  for (let at = 0; at < json.length; at++) {
    const char = json.charAt(at)
    if (char === '"') at = endOfText(json, at)
    else if (char === '-' || isDigit(char)) {
      const end = endOfNumber(json, at)
      const number = json.slice(at, end)
      if (isChanged(number)) {
        parts.push(json.slice(copied, at), `"${number}"`)
        copied = end
      }
      at = end - 1
    }
  }
  return parts.join('') + json.slice(copied)
}

/** Returns true for a JSON integer whose digits a JavaScript number would change. */
function isChanged(number: string): boolean {
  return number !== '-0' && !/[.eE]/.test(number) && String(Number(number)) !== number
}

/** Returns the index of the closing quote of the string that opens at `start`. */
function endOfText(json: string, start: number): number {
  let at = start + 1
  while (json.charAt(at) !== '"') at += json.charAt(at) === '\\' ? 2 : 1
  return at
}

function endOfNumber(json: string, start: number): number {
  let at = start + 1
  while (isDigit(json.charAt(at)) || '+-.eE'.includes(json.charAt(at) || ' ')) at += 1
  return at
}

function isDigit(char: string): boolean {
  return char >= '0' && char <= '9'
}
