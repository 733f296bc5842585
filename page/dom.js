/** Elements made of names, attributes and text. Text is only ever text: nothing here reads HTML. */

/**
 * Makes an element. `attributes` whose value is false or undefined are left out; a function is a listener (`onclick`).
 * @template {keyof HTMLElementTagNameMap} Name
 * @param {Name} name
 * @param {Record<string, unknown>} attributes
 * @param {...(Node | string | undefined)} children
 * @returns {HTMLElementTagNameMap[Name]}
 */
export function element(name, attributes = {}, ...children) {
  const made = document.createElement(name)
  for (const [key, value] of Object.entries(attributes)) {
    if (value === undefined || value === false) continue
    if (typeof value === 'function') made.addEventListener(key.slice(2), (event) => value(event))
    else made.setAttribute(key, value === true ? '' : String(value))
  }
  made.append(...children.filter((child) => child !== undefined))
  return made
}

/** Replaces everything in an element. */
export function fill(parent, ...children) {
  parent.replaceChildren(...children.filter((child) => child !== undefined))
}

/**
 * Text with control characters, and marks that turn its direction, as symbols that can be seen. Line breaks and tabs stay.
 * @param {string} text
 */
export function visible(text) {
  return text.replace(/[^\P{Cc}\n\t]|[\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff]/gu, (character) => {
    const code = character.codePointAt(0) ?? 0
    if (code < 32) return String.fromCodePoint(0x2400 + code)
    return `\\u${code.toString(16).padStart(4, '0')}`
  })
}

/** A number with four digits that matter. */
export function short(value) {
  return typeof value === 'number' ? String(Number(value.toPrecision(4))) : 'none'
}

/** Gets JSON from the server. An answer that is an error throws its sentence. */
export async function get(path, query = []) {
  const search = new URLSearchParams(query).toString()
  const answer = await fetch(search === '' ? path : `${path}?${search}`)
  const body = await answer.json()
  if (!answer.ok) throw new Error(body.error.message)
  return body
}
