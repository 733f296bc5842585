/**
 * Everything that the package exports and that can be called, found in its source by the TypeScript compiler: so a test that walks
 * over all calls cannot forget a new one.
 */

import { fileURLToPath } from 'node:url'
import ts from 'typescript'
import { ENTRIES } from './entries.js'

/** A parameter of a call. */
export interface Parameter {
  readonly name: string
  /** Its type as TypeScript prints it, without `undefined`. */
  readonly type: string
  /** True for an object of options, whose keys are closed. */
  readonly isOptions: boolean
  /** The keys of options, and those that must be given, with their types. */
  readonly keys: readonly string[]
  readonly required: readonly (readonly [name: string, type: string])[]
  /** The forms that it may have, each with its keys: more than one for a union. */
  readonly forms: readonly Pick<Parameter, 'keys' | 'required'>[]
  readonly isOptional: boolean
  /** Its type of numbers, such as `Uint32Array` or `ArrayLike`, if it takes any. */
  readonly array: string | undefined
  /** The same for those of its keys that take one. */
  readonly arrays: Readonly<Record<string, string>>
}

/** One way to call something. */
export interface ExportedCall {
  /** `fn`, `new Class`, `Class.static` or `Class#method`. */
  readonly id: string
  readonly entry: string
  readonly kind: 'function' | 'constructor' | 'static' | 'method'
  readonly owner: string
  readonly member: string
  readonly parameters: readonly Parameter[]
}

const ROOT = fileURLToPath(new URL('../../..', import.meta.url))
const SOURCE = `${ROOT}ts/src/`

/**
 * Types whose names do not say that they are options, but which are closed too: batches and requests that a caller writes down as an
 * object. Others without such a name are data: rows, messages, results, states.
 */
const CLOSED = new Set([
  'GenerateRequest',
  'ScoreRequest',
  'TokenBatch',
  'PaddedTokenBatch',
  'Prompt',
  'TrainHooks',
  'TemplateInput',
  'TemplateQuery',
  'WeightUpdate',
  'DistributionRequest',
  'MappedKeys',
  'RewardPairs',
  'LossBatch',
  'SFTBatch',
  'KTOBatch',
  'PreferenceBatch',
  'DistillationBatch',
])
const HIDDEN = ts.ModifierFlags.Private | ts.ModifierFlags.Protected
const TYPED_ARRAY = /^(Big)?(Int|Uint|Float)\d+(Clamped)?Array$/
const OPTIONS = /(Options|Config|Kwargs|Rule|Steps|OnDevice)$/

export function exportedCalls(): ExportedCall[] {
  const file = ts.readConfigFile(`${ROOT}tsconfig.json`, ts.sys.readFile)
  const { options } = ts.parseJsonConfigFileContent(file.config, ts.sys, ROOT)
  const program = ts.createProgram(
    ENTRIES.map((entry) => SOURCE + entry),
    { ...options, noEmit: true, skipLibCheck: true, types: ['node'] },
  )
  const reader = new Reader(program.getTypeChecker())
  for (const entry of ENTRIES) {
    const source = program.getSourceFile(SOURCE + entry)
    if (source) reader.readEntry(entry, source)
  }
  return reader.calls
}

class Reader {
  readonly calls: ExportedCall[] = []
  readonly #checker: ts.TypeChecker
  readonly #seen = new Set<string>()

  constructor(checker: ts.TypeChecker) {
    this.#checker = checker
  }

  readEntry(entry: string, source: ts.SourceFile): void {
    const checker = this.#checker
    const module = checker.getSymbolAtLocation(source)
    if (!module) throw new Error(`${entry} must be a module`)
    for (const exported of checker.getExportsOfModule(module)) {
      const symbol = exported.flags & ts.SymbolFlags.Alias ? checker.getAliasedSymbol(exported) : exported
      const isTypeOnly = exported.declarations?.some((one) => ts.isTypeOnlyImportOrExportDeclaration(one))
      if (!(symbol.flags & ts.SymbolFlags.Value) || isTypeOnly) continue
      const type = checker.getTypeOfSymbol(symbol)
      const owner = exported.name
      const add = (kind: ExportedCall['kind'], member: string, signatures: readonly ts.Signature[]) => {
        for (const signature of signatures) this.#add({ entry, kind, owner, member }, signature)
      }
      add('function', '', type.getCallSignatures())
      if (!isAbstract(symbol)) add('constructor', '', type.getConstructSignatures())
      if (symbol.flags & ts.SymbolFlags.Function) continue
      for (const property of type.getProperties())
        if (property.name !== 'prototype') add('static', property.name, this.#signaturesOf(property))
      if (!(symbol.flags & ts.SymbolFlags.Class)) continue
      for (const property of checker.getDeclaredTypeOfSymbol(symbol).getProperties())
        add('method', property.name, this.#signaturesOf(property))
    }
  }

  #signaturesOf(property: ts.Symbol): readonly ts.Signature[] {
    const declaration = property.valueDeclaration
    if (!declaration?.getSourceFile().fileName.startsWith(SOURCE)) return []
    if (property.name.startsWith('#') || property.name.startsWith('__#') || property.name.startsWith('__@'))
      return []
    const tags = ts.getJSDocTags(declaration)
    const flags = ts.getCombinedModifierFlags(declaration)
    if (flags & HIDDEN) return []
    if (tags.some(({ tagName }) => tagName.text === 'internal')) return []
    const type = this.#checker.getNonNullableType(this.#checker.getTypeOfSymbol(property))
    return type.getCallSignatures()
  }

  #add(call: Omit<ExportedCall, 'id' | 'parameters'>, signature: ts.Signature): void {
    const { declaration } = signature
    if (!declaration?.getSourceFile().fileName.startsWith(SOURCE)) return
    if (ts.getJSDocTags(declaration).some(({ tagName }) => tagName.text === 'internal')) return
    if (ts.getCombinedModifierFlags(declaration as ts.Declaration) & HIDDEN) return
    const { kind, owner, member } = call
    const names = {
      function: owner,
      constructor: `new ${owner}`,
      static: `${owner}.${member}`,
      method: `${owner}#${member}`,
    }
    // What a class inherits is looked at where it was declared; constructors by themselves, as each calls `super` in its way.
    const place = `${declaration.getSourceFile().fileName}:${declaration.pos}`
    if (kind !== 'constructor' && this.#seen.has(place)) return
    this.#seen.add(place)
    const parameters = signature.getParameters().map((parameter) => this.#parameterOf(parameter))
    this.calls.push({ ...call, id: names[kind], parameters })
  }

  #parameterOf(parameter: ts.Symbol): Parameter {
    const checker = this.#checker
    const type = checker.getNonNullableType(checker.getTypeOfSymbol(parameter))
    const parts = (type.isUnion() ? type.types : [type]).filter((part) => this.#isOptions(part))
    const properties = new Map(
      parts.flatMap((part) => part.getProperties().map((property) => [property.name, property])),
    )
    const requiredOf = (part: ts.Type | undefined) =>
      [...(part?.getProperties() ?? [])]
        .filter((property) => !(property.flags & ts.SymbolFlags.Optional))
        .map((property) => [property.name, this.#print(checker.getTypeOfSymbol(property))] as const)
    const forms = parts.map((part) => ({
      keys: part.getProperties().map(({ name }) => name),
      required: requiredOf(part),
    }))
    const arrays = [...properties.values()].flatMap((property) => {
      const array = this.#arrayOf(checker.getTypeOfSymbol(property))
      return array ? [[property.name, array] as const] : []
    })
    const declaration = parameter.valueDeclaration
    return {
      name: parameter.name,
      type: this.#print(type),
      isOptions: parts.length > 0,
      keys: [...properties.keys()],
      required: requiredOf(parts[0]),
      forms,
      array: this.#arrayOf(type),
      arrays: Object.fromEntries(arrays),
      isOptional: !!declaration && ts.isParameter(declaration) && checker.isOptionalParameter(declaration),
    }
  }

  #isOptions(type: ts.Type): boolean {
    const isObject = (type.flags & ts.TypeFlags.Object) !== 0 || type.isIntersection()
    if (!isObject || type.getCallSignatures().length > 0 || type.getConstructSignatures().length > 0)
      return false
    if (this.#checker.isArrayType(type) || this.#checker.isTupleType(type)) return false
    if (this.#checker.getIndexInfosOfType(type).length > 0 || type.getProperties().length === 0) return false
    const symbol = type.aliasSymbol ?? type.symbol
    if (symbol && symbol.flags & ts.SymbolFlags.Class) return false
    const isOurs = (one: ts.Symbol | undefined) =>
      one?.declarations?.some((declaration) => declaration.getSourceFile().fileName.startsWith(SOURCE)) ??
      false
    if (type.isIntersection()) return type.types.some((part) => this.#isOptions(part))
    const name = symbol?.name ?? ''
    if (['Partial', 'Omit', 'Pick', 'Required'].includes(name)) {
      const [of] = type.aliasTypeArguments ?? []
      return of !== undefined && this.#isOptions(of)
    }
    if (!isOurs(symbol)) return false
    const isAnonymous = name === '__type' || name === '__object'
    // A form of a union with a name, such as `Message`, is what that name says.
    const named = isAnonymous ? (aliasOf(symbol) ?? 'Options') : name
    return OPTIONS.test(named) || CLOSED.has(named)
  }

  /** The typed array, or else the list of numbers, that a type is or may be. */
  #arrayOf(type: ts.Type): string | undefined {
    const parts = this.#checker.getNonNullableType(this.#checker.getBaseConstraintOfType(type) ?? type)
    const names = (parts.isUnion() ? parts.types : [parts]).map((part) => part.symbol?.name ?? '')
    return names.find((name) => TYPED_ARRAY.test(name)) ?? names.find((name) => name === 'ArrayLike')
  }

  #print(type: ts.Type): string {
    return this.#checker.typeToString(type, undefined, ts.TypeFormatFlags.NoTruncation)
  }
}

/** Name of the type whose declaration an anonymous type is a part of, if any. */
function aliasOf(symbol: ts.Symbol | undefined): string | undefined {
  for (let at: ts.Node | undefined = symbol?.declarations?.[0]; at; at = at.parent) {
    if (ts.isTypeAliasDeclaration(at)) return at.name.text
    if (ts.isFunctionLike(at)) return undefined
  }
  return undefined
}

function isAbstract(symbol: ts.Symbol): boolean {
  return (symbol.declarations ?? []).some(
    (declaration) => ts.getCombinedModifierFlags(declaration) & ts.ModifierFlags.Abstract,
  )
}
