/** Configurations of renderers: a family and its options. */

/**
 * New messages that a bridge may append while it keeps earlier reasoning: `tool_cycle` results of tools, `all` any
 * message, `template` those for which the family's template keeps the reasoning too. It never changes a rendering.
 */
export type ThinkingRetention = 'template' | 'tool_cycle' | 'all'

/** Plain ChatML: roles `system`, `user`, `assistant` and `tool`; no system message is made up; no tools. */
export interface ChatMlConfig {
  readonly name: 'chatml'
}

/** Qwen2.5: the frame of ChatML, tools, calls as JSON. */
export interface Qwen25Config {
  readonly name: 'qwen2_5'
}

/** Qwen3: as Qwen2.5, with reasoning between `<think>` tags. */
export interface Qwen3Config {
  readonly name: 'qwen3'
  /**
   * If true, the model thinks before it answers; else the generation prompt holds an empty wrapper.
   * @default true
   */
  readonly enableThinking?: boolean
  /**
   * Messages that a bridge may append.
   * @default 'all' without thinking, else 'tool_cycle'
   */
  readonly thinkingRetention?: ThinkingRetention
}

/** Qwen3.5: reasoning that the prompt opens, calls as tags like those of XML. */
export interface Qwen35Config {
  readonly name: 'qwen3_5'
  /**
   * If true, the model thinks before it answers. The smallest models (0.8B, 2B) were trained with `false`.
   * @default true
   */
  readonly enableThinking?: boolean
  /**
   * Messages that a bridge may append.
   * @default 'all' without thinking, else 'tool_cycle'
   */
  readonly thinkingRetention?: ThinkingRetention
}

/** Qwen3.6: as Qwen3.5, with values of calls as JSON and reasoning that may stay. */
export interface Qwen36Config {
  readonly name: 'qwen3_6'
  /**
   * If true, the model thinks before it answers.
   * @default true
   */
  readonly enableThinking?: boolean
  /**
   * If true, all turns keep their reasoning; else only those after the last query.
   * @default false
   */
  readonly preserveThinking?: boolean
  /**
   * Messages that a bridge may append. With `preserveThinking` anything but 'all' is refused.
   * @default 'all' without thinking or where it is preserved, else 'tool_cycle'
   */
  readonly thinkingRetention?: ThinkingRetention
}

/** Llama 3, 3.1 and 3.2: one call a turn, as JSON. */
export interface Llama3Config {
  readonly name: 'llama3'
  /**
   * Current date for the model.
   * @default '26 Jul 2024'
   */
  readonly dateString?: string
  /**
   * If true, tools are before the first user's text; else in the system's turn.
   * @default true
   */
  readonly toolsInUserMessage?: boolean
  /**
   * If true, there is a system's turn with dates and tools, as from 3.1 on; else the format of Llama 3.0.
   * @default true
   */
  readonly systemBlock?: boolean
}

/** DeepSeek V3. */
export interface DeepseekV3Config {
  readonly name: 'deepseek_v3'
  /**
   * If true, the generation prompt opens reasoning.
   * @default false
   */
  readonly enableThinking?: boolean
}

/** DeepSeek R1, which always reasons. */
export interface DeepseekR1Config {
  readonly name: 'deepseek_r1'
  /**
   * Messages that a bridge may append.
   * @default 'template'
   */
  readonly thinkingRetention?: ThinkingRetention
}

/** GLM-4.5: markers of roles that also end the turn before them, calls as tagged arguments. */
export interface Glm45Config {
  readonly name: 'glm4_5'
  /**
   * If true, the model thinks before it answers; else each user's text ends with `/nothink`.
   * @default true
   */
  readonly enableThinking?: boolean
  /**
   * Messages that a bridge may append.
   * @default 'tool_cycle'
   */
  readonly thinkingRetention?: ThinkingRetention
}

/** GPT-OSS: the channels of harmony. */
export interface GptOssConfig {
  readonly name: 'gpt_oss'
  /**
   * Reasoning effort for the model.
   * @default 'medium'
   */
  readonly reasoningEffort?: string
  /**
   * If true, a conversation opens with the block of the model's identity.
   * @default true
   */
  readonly useSystemPrompt?: boolean
  /**
   * The day that the model takes for today, such as `2025-08-05`.
   * @default the line is left out
   */
  readonly conversationStartDate?: string
  /**
   * Knowledge cutoff for the model.
   * @default '2024-06'
   */
  readonly knowledgeCutoff?: string
  /**
   * Identity for the model.
   * @default that of the stock template
   */
  readonly modelIdentity?: string
  /**
   * If true, reasoning is removed once a later answer exists.
   * @default true
   */
  readonly autoDropAnalysis?: boolean
  /**
   * Messages that a bridge may append. Without `autoDropAnalysis` anything but 'all' is refused.
   * @default 'tool_cycle', 'all' if analysis is not dropped
   */
  readonly thinkingRetention?: ThinkingRetention
}

/** Kimi K2: calls whose ids name their tools. */
export interface KimiK2Config {
  readonly name: 'kimi_k2'
}

/** MiniMax M2: reasoning that the prompt opens, calls as XML. */
export interface MinimaxM2Config {
  readonly name: 'minimax_m2'
  /**
   * Identity for the model without a system text.
   * @default 'You are a helpful assistant.'
   */
  readonly modelIdentity?: string
  /**
   * Messages that a bridge may append.
   * @default 'tool_cycle'
   */
  readonly thinkingRetention?: ThinkingRetention
}

/**
 * Any chat template. Contents of messages and turns of the assistant are found by rendering with marks and by the
 * template's `generation` blocks; a turn that is not found is context of origin `env`. A bridge is refused
 * (`opaque_template`) if the template would change earlier text. Text of messages and tools never becomes a special token;
 * where a template branches on that text and this cannot be guaranteed, texts that spell a special token are refused
 * (`INCOMPATIBLE`). Tools, calls and answers of tools that the template leaves out are refused too.
 */
export interface OpaqueConfig {
  readonly name: 'opaque'
  /**
   * The template's source, in Jinja.
   * @default the one that came with the tokenizer
   */
  readonly template?: string
  /**
   * Variables of the template, such as `enable_thinking`.
   * @default none
   */
  readonly templateKwargs?: Readonly<Record<string, unknown>>
  /**
   * Variables such as `bos_token`.
   * @default those that came with the tokenizer
   */
  readonly specialTokens?: Readonly<Record<string, unknown>>
  /**
   * Time of `strftime_now`, in UTC.
   * @default a template that asks for the time fails
   */
  readonly now?: Date
  /**
   * The tokens that end an assistant's turn, the proper one first.
   * @default the one that the template closes a turn with, the tokenizer's `eos_token`, and those of `parser`
   */
  readonly stopTokens?: readonly string[]
  /**
   * The family that completions are read as.
   * @default all is content, up to the token that ends the turn
   */
  readonly parser?: Exclude<RendererConfig, OpaqueConfig>
}

/**
 * The family of a model that is known by exactly its name. For any other model, and without one, the chat template that
 * came with the tokenizer decides: the family that writes the same text for conversations which show all its parts, and
 * {@link OpaqueConfig} where none does. The renderer's `name` and `reason` are the choice and why it was made.
 */
export interface AutoConfig {
  readonly name: 'auto'
  /**
   * The model's name, as its hub writes it: `Qwen/Qwen3-8B`.
   * @default the template alone decides
   */
  readonly model?: string
}

/**
 * A family and its options. Unknown names and options are refused.
 *
 * Returns the rest of an assistant's message after it was rendered and parsed:
 *
 * | family | content with blanks around it | reasoning | content with a call | several calls | ids of calls |
 * |---|---|---|---|---|---|
 * | `chatml` | kept | lost | refused | refused | refused |
 * | `qwen2_5` | trimmed | lost | kept | kept | lost |
 * | `qwen3` | trimmed | trimmed | kept | kept | lost |
 * | `qwen3_5` | trimmed | trimmed | kept | kept | lost |
 * | `qwen3_6` | trimmed | trimmed | kept | kept | lost |
 * | `llama3` | trimmed | lost | lost | refused | lost |
 * | `deepseek_v3` | trimmed | lost | kept | kept | lost |
 * | `deepseek_r1` | trimmed | lost | without the call | kept | lost |
 * | `glm4_5` | trimmed | trimmed | kept | kept | lost |
 * | `gpt_oss` | trimmed | trimmed | as reasoning | refused | lost |
 * | `kimi_k2` | trimmed | lost | kept | kept | kept |
 * | `minimax_m2` | trimmed | trimmed | kept | kept | lost |
 */
export type RendererConfig =
  | ChatMlConfig
  | Qwen25Config
  | Qwen3Config
  | Qwen35Config
  | Qwen36Config
  | Llama3Config
  | DeepseekV3Config
  | DeepseekR1Config
  | Glm45Config
  | GptOssConfig
  | KimiK2Config
  | MinimaxM2Config
  | OpaqueConfig
  | AutoConfig
