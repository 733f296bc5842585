//! The special tokens of every family, for a tokenizer that serves all.

/// Their names, separated by spaces.
pub const MARKERS: &str = "<|endoftext|> <|im_start|> <|im_end|> <think> </think> <tool_call> </tool_call> \
    <tool_response> </tool_response> <|begin_of_text|> <|start_header_id|> <|end_header_id|> <|eot_id|> \
    <|end_of_text|> <|eom_id|> <|python_tag|> <｜begin▁of▁sentence｜> <｜end▁of▁sentence｜> <｜User｜> <｜Assistant｜> \
    <｜tool▁calls▁begin｜> <｜tool▁calls▁end｜> <｜tool▁call▁begin｜> <｜tool▁call▁end｜> <｜tool▁sep｜> \
    <｜tool▁outputs▁begin｜> <｜tool▁outputs▁end｜> <｜tool▁output▁begin｜> <｜tool▁output▁end｜> [gMASK] <sop> <|system|> \
    <|user|> <|assistant|> <|observation|> <arg_key> </arg_key> <arg_value> </arg_value> /nothink <|start|> \
    <|channel|> <|message|> <|end|> <|return|> <|call|> <|constrain|> <|im_system|> <|im_user|> <|im_assistant|> \
    <|im_middle|> <|tool_calls_section_begin|> <|tool_calls_section_end|> <|tool_call_begin|> \
    <|tool_call_argument_begin|> <|tool_call_end|> ]~!b[ ]~b] [e~[ <minimax:tool_call> </minimax:tool_call>";
