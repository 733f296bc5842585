/** Tools that a policy may call, parsers of calls, and their execution. */

export type { BrowserLookup } from './browser-proxy.js'
export {
  type BrowserAction,
  type BrowserTool,
  type BrowserToolsOptions,
  browserTools,
} from './browser-tools.js'
export type { PythonResult } from './interpreter.js'
export type { InterpreterOptions } from './interpreters.js'
export { JSONCallParser } from './json-call-parser.js'
export type { McpImages } from './mcp-content.js'
export type { McpAddress, McpCommand, McpProgress, McpSandbox, McpServer } from './mcp-server.js'
export { McpTools, type McpToolsOptions, mcpTools } from './mcp-tools.js'
export { PythonBlockParser } from './python-block-parser.js'
export { type PythonTool, type PythonToolOptions, pythonTool } from './python-tool.js'
export {
  Sandbox,
  type SandboxOptions,
  type SandboxProgram,
  type SandboxResult,
  type SandboxRunOptions,
} from './sandbox.js'
export type { SandboxBackend, SandboxSupport } from './sandbox-backend.js'
export type { SandboxLimits } from './sandbox-limits.js'
export {
  type ArgumentsOf,
  type NamedValue,
  type ObjectSchema,
  type SchemaObject,
  type SchemaValue,
  type ToolOptions,
  tool,
} from './tool.js'
export { ToolBlockParser } from './tool-block-parser.js'
export {
  type ParsedCalls,
  type ToolArguments,
  type ToolCall,
  type ToolCallParser,
  toolCallsOf,
  toolInstructions,
} from './tool-call.js'
export { ToolContent } from './tool-content.js'
export {
  type CheckedArguments,
  type StandardResult,
  type StandardSchema,
  type Tool,
  type ToolContext,
  ToolRegistry,
} from './tool-registry.js'
export {
  type ToolLimits,
  type ToolResult,
  ToolRunner,
  type ToolRunnerOptions,
  type ToolRunOptions,
} from './tool-runner.js'
export { type WithToolsOptions, withTools } from './with-tools.js'
export { XMLBlockParser } from './xml-block-parser.js'
