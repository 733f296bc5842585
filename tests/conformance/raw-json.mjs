/** JSON text cut into pieces of text, so that numbers such as `1.0` and the order of keys survive. */

/** The members of a JSON object's text: name -> the text of its value. The text must be valid JSON. */
export function members(text) {
  const found = new Map()
  let at = skipSpace(text, 0) + 1
  while (text[skipSpace(text, at)] !== '}') {
    const nameStart = skipSpace(text, at)
    const nameEnd = endOfValue(text, nameStart)
    const start = skipSpace(text, skipSpace(text, nameEnd) + 1)
    const end = endOfValue(text, start)
    found.set(JSON.parse(text.slice(nameStart, nameEnd)), text.slice(start, end))
    at = skipSpace(text, end)
    if (text[at] === ',') at += 1
  }
  return found
}

function skipSpace(text, start) {
  let at = start
  while (' \t\n\r'.includes(text[at] ?? '.')) at += 1
  return at
}

/** Returns the end of the value that starts at `start`. */
function endOfValue(text, start) {
  let depth = 0
  let at = start
  do {
    const char = text[at]
    if (char === '"') at = endOfText(text, at)
    else {
      if (char === '{' || char === '[') depth += 1
      if (char === '}' || char === ']') depth -= 1
      at += 1
    }
  } while (depth > 0 || (start + 1 <= at && isInsideScalar(text, start, at)))
  return at
}

function isInsideScalar(text, start, at) {
  return !'"{['.includes(text[start]) && at < text.length && !',]} \t\n\r'.includes(text[at])
}

function endOfText(text, start) {
  let at = start + 1
  while (text[at] !== '"') at += text[at] === '\\' ? 2 : 1
  return at + 1
}
