/** Text of policies and files for a terminal. */

/**
 * Returns the text on one line with every control character, and every mark that turns the direction of text, as an escape: a terminal
 * obeys none of them.
 */
export function printable(text: string): string {
  return text.replace(UNPRINTABLE, (character) => {
    const code = character.codePointAt(0) ?? 0
    return ESCAPES.get(character) ?? `\\u${code.toString(16).padStart(4, '0')}`
  })
}

/** Control characters, separators of lines, and marks of direction. */
const UNPRINTABLE = /[\p{Cc}\u2028\u2029\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff]/gu

const ESCAPES: ReadonlyMap<string, string> = new Map([
  ['\n', '\\n'],
  ['\r', '\\r'],
  ['\t', '\\t'],
])
