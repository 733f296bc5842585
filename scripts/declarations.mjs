/** The declarations that napi-rs and wasm-bindgen make of a binding: one entry a name, in one form for both. */

import ts from 'typescript'

/** Members of every class that owns memory: `RawOwner` declares them. */
const OWNER_MEMBERS = new Set(['free', 'watch'])
/** Types that need no declaration. */
const BUILT_IN = /^(?:(?:Big)?(?:Uint|Int|Float)\d+Array|ArrayBuffer)$/

/**
 * Returns the entries of a `.d.ts` by their path: `Tensor` for a class, `new Rng`, `Tensor.slice`, `static Tensor.zeros`, `Draw.id` for the field of
 * a record, `describe` for a function.
 *
 * An entry has a `kind`, a `name`, an `owner` if it is a member, the lines of its `doc`, the `params` of what can be called and its `type`.
 * Types are written alike: names of the binding begin with `Raw`, lists are `T[]`; `isNullable` covers `null`, `undefined` and a question mark,
 * `isPromise` for a promise.
 */
export function declarationsOf(text) {
  const source = ts.createSourceFile('binding.d.ts', text, ts.ScriptTarget.Latest, true)
  const entries = source.statements.flatMap((statement) => {
    if (ts.isFunctionDeclaration(statement)) return [callable('function', statement, source)]
    if (ts.isClassDeclaration(statement) || ts.isInterfaceDeclaration(statement))
      return ownerOf(statement, source)
    return []
  })
  return new Map(entries.map((entry) => [pathOf(entry), entry]))
}

function pathOf({ kind, owner, name }) {
  if (kind === 'constructor') return `new ${owner}`
  const path = owner === undefined ? name : `${owner}.${name}`
  return kind === 'static' ? `static ${path}` : path
}

/** A class or a record, and its members. A class with fields is a record: wasm-bindgen makes one of a plain object. */
function ownerOf(statement, source) {
  const owner = statement.name.text
  const members = statement.members.flatMap((member) => memberOf(member, source))
  const kind = members.some((member) => member.kind === 'field') ? 'record' : 'class'
  const named = members.filter(({ name }) => !OWNER_MEMBERS.has(name)).map((member) => ({ ...member, owner }))
  const isFreed = members.some(({ name }) => name === 'free')
  return [{ kind, name: owner, doc: docOf(statement, source), isFreed }, ...named]
}

function memberOf(member, source) {
  const flags = ts.getCombinedModifierFlags(member)
  if (flags & ts.ModifierFlags.Private || ts.isSetAccessor(member)) return []
  if (ts.isConstructorDeclaration(member)) return [callable('constructor', member, source)]
  // Not `[Symbol.dispose]`, which wasm-bindgen adds.
  if (!ts.isIdentifier(member.name)) return []
  if (ts.isMethodDeclaration(member))
    return [callable(flags & ts.ModifierFlags.Static ? 'static' : 'method', member, source)]
  return [{ kind: 'field', name: member.name.text, doc: docOf(member, source), type: typeOfField(member) }]
}

function callable(kind, node, source) {
  const params = node.parameters.map((param) => ({
    name: camelCase(param.name.getText(source)),
    type: typeOfField(param),
  }))
  const type = kind === 'constructor' ? undefined : typeOf(node.type)
  return { kind, name: node.name?.text, doc: docOf(node, source), params, type }
}

/** wasm-bindgen leaves the arguments in the case of Rust. */
const camelCase = (name) => name.replace(/^_+/, '').replace(/_(\w)/g, (_, letter) => letter.toUpperCase())

function typeOfField(node) {
  const type = typeOf(node.type)
  return node.questionToken ? { ...type, isNullable: true } : type
}

/** A type, `any` where none is written. */
function typeOf(node) {
  const parts = node && ts.isUnionTypeNode(node) ? [...node.types] : [node]
  const present = parts.filter((part) => !isAbsence(part))
  const isNullable = present.length < parts.length
  const [only] = present
  if (present.length === 1 && only && isReference(only, 'Promise')) {
    const awaited = typeOf(only.typeArguments?.[0])
    return { ...awaited, isNullable: isNullable || awaited.isNullable, isPromise: true }
  }
  return { text: unionOf(present), isNullable, isPromise: false }
}

const isAbsence = (node) =>
  node?.kind === ts.SyntaxKind.UndefinedKeyword ||
  (node !== undefined && ts.isLiteralTypeNode(node) && node.literal.kind === ts.SyntaxKind.NullKeyword)

const isReference = (node, name) => ts.isTypeReferenceNode(node) && node.typeName.getText() === name

/** wasm-bindgen takes a list of numbers where it takes an array: that is left out. */
function unionOf(nodes) {
  const texts = nodes.map(textOf).sort()
  const hasArray = texts.some((text) => BUILT_IN.test(text))
  return texts.filter((text) => !(hasArray && /^(?:number|bigint)\[\]$/.test(text))).join(' | ')
}

function textOf(node) {
  if (node === undefined) return 'any'
  if (ts.isUnionTypeNode(node)) return unionOf(node.types)
  if (ts.isParenthesizedTypeNode(node)) return `(${textOf(node.type)})`
  if (ts.isArrayTypeNode(node)) return `${textOf(node.elementType)}[]`
  if (isReference(node, 'Array')) return `${textOf(node.typeArguments?.[0])}[]`
  if (ts.isFunctionTypeNode(node)) {
    const params = node.parameters.map((param) => `${param.name.getText()}: ${textOf(param.type)}`)
    return `(${params.join(', ')}) => ${textOf(node.type)}`
  }
  const text = node.getText()
  return ts.isTypeReferenceNode(node) && !BUILT_IN.test(text) ? `Raw${text}` : text
}

/** The lines of a doc. Of one that a macro passed on, napi-rs writes the literal of Rust: `r" Text."`, without its end. */
function docOf(node, source) {
  const [doc] = node.jsDoc ?? []
  if (!doc) return []
  const inner = doc.getText(source).slice('/**'.length, -'*/'.length)
  const lines = inner.split('\n').map((line) => line.replace(/^\s*\*? ?(?:r#*" ?)?/, '').trimEnd())
  return lines.filter((line, at) => line !== '' || (at > 0 && at < lines.length - 1))
}
