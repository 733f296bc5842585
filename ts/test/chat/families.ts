/** The families of renderers, and a vocabulary for all of them. */

import type { RendererConfig } from '../../src/chat/index.js'

/** The special tokens of all families. */
export const specialTokens =
  `<|endoftext|> <|im_start|> <|im_end|> <think> </think> <tool_call> </tool_call> <tool_response>
  </tool_response> <|begin_of_text|> <|start_header_id|> <|end_header_id|> <|eot_id|> <|end_of_text|> <|eom_id|>
  <|python_tag|> <｜begin▁of▁sentence｜> <｜end▁of▁sentence｜> <｜User｜> <｜Assistant｜> <｜tool▁calls▁begin｜>
  <｜tool▁calls▁end｜> <｜tool▁call▁begin｜> <｜tool▁call▁end｜> <｜tool▁sep｜> <｜tool▁outputs▁begin｜>
  <｜tool▁outputs▁end｜> <｜tool▁output▁begin｜> <｜tool▁output▁end｜> [gMASK] <sop> <|system|> <|user|> <|assistant|>
  <|observation|> <arg_key> </arg_key> <arg_value> </arg_value> /nothink <|start|> <|channel|> <|message|> <|end|>
  <|return|> <|call|> <|constrain|> <|im_system|> <|im_user|> <|im_assistant|> <|im_middle|>
  <|tool_calls_section_begin|> <|tool_calls_section_end|> <|tool_call_begin|> <|tool_call_argument_begin|>
  <|tool_call_end|> ]~!b[ ]~b] [e~[ <minimax:tool_call> </minimax:tool_call>`.split(/\s+/)
const ascii = String.fromCharCode(...Array.from({ length: 95 }, (_, index) => 32 + index))
/** Characters of a tokenizer that all of them can use. */
export const alphabet = `\n${ascii}éäßü—✓\u2028`

/** One configuration of each family, and of each option that changes its wire format. */
export const configs: readonly RendererConfig[] = [
  { name: 'chatml' },
  { name: 'qwen2_5' },
  { name: 'qwen3' },
  { name: 'qwen3', enableThinking: false },
  { name: 'qwen3_5' },
  { name: 'qwen3_6', preserveThinking: true },
  { name: 'llama3', dateString: '1 Jan 2026' },
  { name: 'deepseek_v3' },
  { name: 'deepseek_r1' },
  { name: 'glm4_5' },
  { name: 'gpt_oss', conversationStartDate: '2025-08-05' },
  { name: 'kimi_k2' },
  { name: 'minimax_m2' },
]
