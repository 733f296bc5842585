/** Tools whose argument types follow from their schema. */

import { checkKnownKeys } from '../core/index.js'
import { type StandardSchema, type Tool, type ToolContext, ToolRegistry } from './tool-registry.js'

/** A JSON Schema of an object, written as a literal. */
export interface ObjectSchema {
  readonly type: 'object'
  readonly properties: Readonly<Record<string, unknown>>
  readonly required?: readonly string[]
  readonly [key: string]: unknown
}

/**
 * Type of the values that a JSON Schema allows, as far as `type`, `enum`, `const`, `anyOf`, `oneOf`, `properties`,
 * `required`, `additionalProperties` and `items` determine it; else `unknown`.
 */
export type SchemaValue<Schema> = Schema extends { readonly const: infer Value }
  ? Value
  : Schema extends { readonly enum: readonly (infer Value)[] }
    ? Value
    : Schema extends { readonly anyOf: readonly (infer Choice)[] }
      ? SchemaValue<Choice>
      : Schema extends { readonly oneOf: readonly (infer Choice)[] }
        ? SchemaValue<Choice>
        : Schema extends { readonly type: readonly (infer Name)[] }
          ? NamedValue<Name, Schema>
          : Schema extends { readonly type: infer Name }
            ? NamedValue<Name, Schema>
            : unknown

/** Type of the values of a schema whose `type` is `Name`, or one of `Name` if it is a union. */
export type NamedValue<Name, Schema> = Name extends 'string'
  ? string
  : Name extends 'number' | 'integer'
    ? number
    : Name extends 'boolean'
      ? boolean
      : Name extends 'null'
        ? null
        : Name extends 'array'
          ? Schema extends { readonly items: infer Items }
            ? readonly SchemaValue<Items>[]
            : readonly unknown[]
          : Name extends 'object'
            ? Schema extends { readonly properties: infer Properties }
              ? SchemaObject<Properties, Schema>
              : Schema extends { readonly additionalProperties: infer Value extends object }
                ? Readonly<Record<string, SchemaValue<Value>>>
                : Readonly<Record<string, unknown>>
            : unknown

/** Type of an object with these properties; those in `required` are not optional. */
export type SchemaObject<Properties, Schema> = Schema extends {
  readonly required: readonly (infer Required)[]
}
  ? {
      readonly [Name in keyof Properties as Name extends Required ? Name : never]: SchemaValue<
        Properties[Name]
      >
    } & {
      readonly [Name in keyof Properties as Name extends Required ? never : Name]?: SchemaValue<
        Properties[Name]
      >
    }
  : { readonly [Name in keyof Properties]?: SchemaValue<Properties[Name]> }

/** Type of the arguments of a tool with this schema. */
export type ArgumentsOf<Schema> = Schema extends StandardSchema<infer Output> ? Output : SchemaValue<Schema>

/** Options of {@link tool}. */
export interface ToolOptions<Schema extends ObjectSchema | StandardSchema> {
  /** Name for calls: at most 64 letters, digits, `_`, `.` and `-`. */
  readonly name: string
  /** Description for the policy. */
  readonly description?: string
  /**
   * A JSON Schema, which the policy gets too, or a Standard Schema validator (zod, valibot, arktype). Invalid
   * arguments are answered with the reason, and `run` is not called.
   */
  readonly schema: Schema
  /**
   * JSON Schema for the policy, in addition to a Standard Schema validator.
   * @default `schema` if it is a JSON Schema; else any object
   */
  readonly parameters?: ObjectSchema
  /** If true, the tool keeps state for each conversation; see {@link Tool.perConversation}. @default false */
  readonly perConversation?: boolean
  /** Runs a call and returns JSON, or a promise of it. An error becomes the answer of the call. */
  readonly run: (args: ArgumentsOf<Schema>, context: ToolContext) => unknown
}

/**
 * Makes a tool for `defineTask`, `ToolRunner` and TorchRL's transforms. The types of its arguments follow from the schema.
 *
 * @throws {FulmarError} `UNKNOWN_NAME` for an unknown option; `MALFORMED` for a name, schema or function of another form.
 *
 * @example
 * ```ts
 * import { tool, ToolRunner } from 'fulmar'
 * import assert from 'node:assert/strict'
 *
 * const add = tool({
 *   name: 'add',
 *   description: 'Adds two numbers.',
 *   schema: { type: 'object', properties: { a: { type: 'number' }, b: { type: 'number' } }, required: ['a', 'b'] },
 *   run: ({ a, b }) => a + b, // a and b are numbers
 * })
 * const runner = new ToolRunner({ tools: [add] })
 * const calls = [{ tool: 'add', args: { a: 2, b: 3 }, tag: null }, { tool: 'add', args: { a: 2 }, tag: null }]
 * const [sum, wrong] = await runner.run(calls, { messages: [] })
 * assert.equal(sum?.ok && sum.value, 5)
 * assert.equal(wrong?.ok === false && wrong.error.code, 'MALFORMED')
 * ```
 */
export function tool<const Schema extends ObjectSchema | StandardSchema>(
  options: ToolOptions<Schema>,
): Tool<ArgumentsOf<Schema> & Readonly<Record<string, unknown>>> {
  checkKnownKeys(
    'tool',
    options,
    ['name', 'description', 'schema', 'parameters', 'perConversation', 'run'],
    ['name', 'schema', 'run'],
  )
  const { name, description, schema, parameters, perConversation, run } = options
  const checked = isStandard(schema)
    ? { schema, ...(parameters && { parameters }) }
    : { parameters: parameters ?? (schema as ObjectSchema) }
  const keeps = perConversation === undefined ? {} : { perConversation }
  const made = { name, ...(description !== undefined && { description }), ...checked, ...keeps, run }
  new ToolRegistry([made as Tool])
  return Object.freeze(made)
}

function isStandard(schema: ObjectSchema | StandardSchema): schema is StandardSchema {
  return (
    typeof schema === 'function' || (typeof schema === 'object' && schema !== null && '~standard' in schema)
  )
}
