/** Results of MCP tools as text or content parts. */

import type { ContentPart } from '../chat/index.js'
import { isRecord } from './tool-call.js'
import { ToolContent } from './tool-content.js'

/** Form of images in results. */
export type McpImages = 'text' | 'part'

/** Result of `tools/call`, whose fields come from the server. */
export interface McpResult {
  readonly content?: unknown
  readonly structuredContent?: unknown
  readonly isError?: unknown
}

/** Returns the text of a result, or its parts if one of them is an image that becomes a part. */
export function mcpContent(result: McpResult, images: McpImages): string | ToolContent {
  const items = Array.isArray(result.content) ? result.content.filter(isRecord) : []
  if (items.length === 0 && result.structuredContent !== undefined)
    return JSON.stringify(result.structuredContent)
  const parts = items.map((item) => partOf(item, images))
  if (parts.some(({ type }) => type !== 'text')) return new ToolContent(parts)
  return parts.map(({ text }) => String(text)).join('\n')
}

function partOf(item: Readonly<Record<string, unknown>>, images: McpImages): ContentPart {
  const { type, data, mimeType = 'application/octet-stream' } = item
  if (type === 'text') return text(String(item.text))
  if (type === 'image' && images === 'part') {
    return { type: 'image_url', image_url: { url: `data:${String(mimeType)};base64,${String(data)}` } }
  }
  if (type === 'image' || type === 'audio') return text(`[${type} ${mimeType}, ${numBytes(data)} bytes]`)
  if (type === 'resource_link') return text(`[resource ${words(item.uri, item.name, item.description)}]`)
  if (type === 'resource' && isRecord(item.resource)) return text(resourceText(item.resource))
  return text(`[${String(type)}]`)
}

function resourceText(resource: Readonly<Record<string, unknown>>): string {
  const { uri, mimeType, blob } = resource
  if (typeof resource.text === 'string') return `[resource ${words(uri, mimeType)}]\n${resource.text}`
  return `[resource ${words(uri, mimeType)}, ${numBytes(blob)} bytes]`
}

const text = (value: string): ContentPart => ({ type: 'text', text: value })
const words = (...parts: readonly unknown[]) => parts.filter((part) => typeof part === 'string').join(' ')
const numBytes = (base64: unknown) =>
  typeof base64 === 'string' ? Math.floor((3 * base64.replace(/=+$/, '').length) / 4) : 0
